//! Whether all records of a key are in one task.

use super::graph::NodeId;
use super::keyed_stream::KeyedStream;
use super::stream::Stream;
use crate::codec::{Data, Key, Wire};
use std::fmt;

/// Records of a key may be in any task: an operator with state repartitions them first, so their values must be able to
/// travel ([`Wire`]).
#[derive(Clone, Copy, Debug)]
pub enum Scattered {}

/// All records of a key are in one task: an operator with state takes them as they are.
#[derive(Clone, Copy, Debug)]
pub enum Together {}

/// [`Scattered`] or [`Together`]. There are no others.
#[diagnostic::on_unimplemented(
    message = "values of type `{T}` cannot be repartitioned",
    note = "before an operator with state, values travel through a topic: derive `serde::Serialize` and `Deserialize`, \
            say `.partitioned_by_key()` if the source is, or use `.repartition_with(name, codec)`"
)]
pub trait Placement<K, T>: Sized {
    #[doc(hidden)]
    fn together(stream: &KeyedStream<K, T, Self>, name: &str) -> Input<K, T>;
}

/// A stream with all records of a key in one task.
#[doc(hidden)]
pub struct Input<K, T> {
    pub(super) stream: Stream<(K, T)>,
    /// The writing half of the repartition that it took.
    pub(super) write: Option<NodeId>,
}

impl<K: Key, T: Data> Placement<K, T> for Together {
    fn together(stream: &KeyedStream<K, T, Self>, _: &str) -> Input<K, T> {
        Input { stream: stream.pairs(), write: None }
    }
}

impl<K: Key, T: Wire> Placement<K, T> for Scattered {
    fn together(stream: &KeyedStream<K, T, Self>, name: &str) -> Input<K, T> {
        stream.repartition(name).into_input()
    }
}

impl<K, T> fmt::Debug for Input<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("stream", &self.stream).field("write", &self.write).finish()
    }
}

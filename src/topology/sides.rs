//! The two sides of a join in a program: brought together by key, and marked.

use super::assembly::room;
use super::graph::{Kind, NodeId};
use super::keyed_stream::KeyedStream;
use super::placement::{Input, Placement, Together};
use super::stream::Stream;
use crate::codec::{Data, Key};
use crate::processor::{ErrorPolicy, JoinKind, Side, SideRoom};
use std::sync::Arc;

/// Records of one side, marked with it.
type Marked<K, S> = Stream<(K, S)>;

/// Both sides of a join, each with all records of a key in one task.
pub(super) struct Sides<K, L, R> {
    pub(super) name: String,
    pub(super) left: Stream<(K, L)>,
    pub(super) right: Stream<(K, R)>,
    /// The writing halves of the repartitions that it took.
    pub(super) writes: Vec<NodeId>,
}

impl<K: Key, L: Data, R: Data> Sides<K, L, R> {
    pub(super) fn new<P: Placement<K, L>, Q: Placement<K, R>>(
        name: &str,
        left: &KeyedStream<K, L, P>,
        right: &KeyedStream<K, R, Q>,
    ) -> Self {
        let Input { stream: left, write } = P::together(left, &format!("{name}-left"));
        let Input { stream: right, write: other } = Q::together(right, &format!("{name}-right"));
        Sides { name: name.to_owned(), left, right, writes: write.into_iter().chain(other).collect() }
    }

    /// Marks the records of both sides; returns the two streams that a room takes together.
    pub(super) fn marked<S: Data>(
        &self,
        kind: JoinKind,
        left: impl Fn(L) -> S + Send + Sync + 'static,
        right: impl Fn(R) -> S + Send + Sync + 'static,
    ) -> (Marked<K, S>, Marked<K, S>) {
        let left = side(&self.left, "left side", &self.name, kind.keeps(Side::Left), left);
        let right = side(&self.right, "right side", &self.name, kind.keeps(Side::Right), right);
        (left, right)
    }
}

fn side<K: Key, V: Data, S: Data>(
    stream: &Stream<(K, V)>,
    word: &'static str,
    name: &str,
    keeps: bool,
    mark: impl Fn(V) -> S + Send + Sync + 'static,
) -> Stream<(K, S)> {
    let (mark, stage): (_, Arc<str>) = (Arc::new(mark), name.into());
    let node = stream.add(Kind::Side { word }, None, move |assembly| {
        let next = assembly.next::<(K, S)>()?;
        Ok(room::<(K, V)>(SideRoom { stage: stage.clone(), mark: mark.clone(), keeps, out: vec![], next }))
    });
    Stream::new(stream.graph(), node)
}

/// Sets the policy of an operator and of the repartitions that it brought along.
pub(super) fn set_policy<K: Key, O: Data>(
    stream: &KeyedStream<K, O, Together>,
    writes: &[NodeId],
    policy: ErrorPolicy,
) {
    let mut graph = stream.stream.graph().borrow_mut();
    for write in writes {
        if let Some(node) = graph.node_mut(*write) {
            node.policy = Some(policy.clone());
        }
    }
    drop(graph);
    stream.stream.set_policy(policy);
}

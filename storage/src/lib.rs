//! State stores behind one trait.
mod range;
mod store;
pub use range::KeyRange;
pub use store::{Cursor, Order, ReadStore, StateStore};
/// Changes of one epoch. (Under construction.)
#[derive(Debug, Default)]
pub struct Delta;

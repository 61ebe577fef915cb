//! Which sources meet in a join.

use super::graph::{Kind, Node, NodeId};
use std::collections::BTreeSet;

/// For each node of `members` that takes sides, the sources that reach it, by their places in `sources`.
pub(super) fn copartitioned(nodes: &[Node], members: &[NodeId], sources: &[NodeId]) -> Vec<Vec<usize>> {
    let node = |id: &NodeId| nodes.get(id.0);
    let takes_sides = |id: &&NodeId| {
        let inputs = node(id).into_iter().flat_map(|node| &node.inputs);
        inputs.filter_map(node).any(|input| matches!(input.kind, Kind::Side { .. }))
    };
    let mut groups = vec![];
    for join in members.iter().filter(takes_sides) {
        let (mut open, mut seen, mut found) = (vec![*join], BTreeSet::new(), BTreeSet::new());
        while let Some(id) = open.pop() {
            found.extend(sources.iter().position(|source| *source == id));
            open.extend(node(&id).into_iter().flat_map(|node| &node.inputs).filter(|input| seen.insert(**input)));
        }
        groups.push(found.into_iter().collect());
    }
    groups
}

//! Builds the rooms of one stage from the graph.

use super::graph::{Kind, Make, Node, NodeId};
use crate::codec::Data;
use crate::process::{Side, Sides};
use crate::processor::{Branches, End, ErrorPolicy, Guard, Ingest, InputClock, Merge, Push};
use crate::stage::{Context, SourceBatch, Stage};
use crate::state::TaskState;
use crate::time::{Input, Watermark};
use onceflow_types::{Error, Result};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A subtopology, checked and numbered.
pub(super) struct Part {
    /// The whole graph.
    pub(super) nodes: Arc<[Node]>,
    /// Who takes the records of each node.
    pub(super) children: Arc<[Vec<NodeId>]>,
    /// Which nodes have something behind them that works with time.
    pub(super) timed: Arc<[bool]>,
    /// The sources, in the order of the plan.
    pub(super) sources: Vec<NodeId>,
    /// The sinks of nodes by their index in the plan.
    pub(super) sinks: BTreeMap<NodeId, usize>,
    /// The sinks of dead letter topics by their index in the plan.
    pub(super) dead_letters: BTreeMap<Arc<str>, usize>,
}

/// Makes the rooms of one task, from the sources on.
pub(super) struct Assembly<'p> {
    part: &'p Part,
    /// The node whose room is being made.
    current: NodeId,
    /// Rooms with several ways in: a `Merge<T>` each.
    merges: BTreeMap<NodeId, Box<dyn Any>>,
}

impl<'p> Assembly<'p> {
    fn node(&self, id: NodeId) -> Result<&'p Node> {
        self.part.nodes.get(id.0).ok_or_else(|| Error::bug("node is not in the graph"))
    }

    /// The kind of the node whose room is being made.
    pub(super) fn kind(&self) -> Result<&'p Kind> {
        Ok(&self.node(self.current)?.kind)
    }

    /// What takes the records of the present node.
    pub(super) fn next<U: Data>(&mut self) -> Result<Box<dyn Push<U>>> {
        self.port(0)
    }

    /// What takes the records of one of the present node's outputs: 0 is its stream, others are taken by port nodes.
    pub(super) fn port<U: Data>(&mut self, wanted: u32) -> Result<Box<dyn Push<U>>> {
        let children = self.part.children.get(self.current.0).map_or(&[][..], Vec::as_slice);
        let port_of = |child: &NodeId| match self.part.nodes.get(child.0).map(|node| &node.kind) {
            Some(Kind::Port { port, .. }) => *port,
            _ => 0,
        };
        let children: Vec<NodeId> = children.iter().copied().filter(|child| port_of(child) == wanted).collect();
        match children.as_slice() {
            [] => Ok(Box::new(End)),
            [child] => self.room(*child),
            _ => {
                let branches = children.iter().map(|child| self.room(*child)).collect::<Result<Vec<_>>>()?;
                Ok(Box::new(Branches::new(branches)))
            }
        }
    }

    /// What takes the present node's other outputs, whatever their types are.
    pub(super) fn sides(&mut self) -> Result<Sides> {
        let mut sides = Sides::default();
        let children = self.part.children.get(self.current.0).map_or(&[][..], Vec::as_slice);
        for child in children {
            if let Some(Node { kind: Kind::Port { port, .. }, .. }) = self.part.nodes.get(child.0) {
                let side = self.make_any(*child)?.downcast::<Box<dyn Side>>().map_err(|_| mismatch())?;
                sides.add(*port, *side);
            }
        }
        Ok(sides)
    }

    /// Whether something behind the present node works with time.
    pub(super) fn is_timed(&self) -> bool {
        self.part.timed.get(self.current.0).copied().unwrap_or(false)
    }

    /// The number of the present node as an input of those behind it.
    pub(super) fn own_input(&self) -> Result<Input> {
        self.input_of(self.current).ok_or_else(|| Error::bug("node is no input of others"))
    }

    /// Sources by their place in the plan, then all nodes by theirs in the graph.
    fn input_of(&self, id: NodeId) -> Option<Input> {
        let number = match self.part.sources.iter().position(|source| *source == id) {
            Some(source) => source,
            None if self.part.nodes.get(id.0)?.kind.is_timed() => self.part.sources.len() + id.0,
            None => return None,
        };
        Input::try_from(number).ok()
    }

    /// The inputs that reach the present node: the nearest sources and operators with a time of their own before it.
    pub(super) fn inputs(&self) -> Result<BTreeMap<Input, &'p Kind>> {
        let mut found = BTreeMap::new();
        let mut open: Vec<NodeId> = self.node(self.current)?.time_inputs().to_vec();
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            let node = self.node(id)?;
            match self.input_of(id) {
                Some(input) => {
                    found.insert(input, &node.kind);
                }
                None if seen.insert(id) => open.extend(node.time_inputs()),
                None => {}
            }
        }
        Ok(found)
    }

    /// A clock over the inputs that reach the present node.
    pub(super) fn clock(&self) -> Result<InputClock> {
        Ok(InputClock::new(self.inputs()?.into_keys()))
    }

    /// Whether something behind the present node goes by the time that it has here.
    pub(super) fn time_is_used(&self) -> bool {
        let mut open = vec![self.current];
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            for child in self.part.children.get(id.0).into_iter().flatten() {
                let Some(node) = self.part.nodes.get(child.0).filter(|_| seen.insert(*child)) else { continue };
                let timed = self.part.timed.get(child.0).copied().unwrap_or(false);
                match &node.kind {
                    Kind::EventTime { .. } => {}
                    Kind::RepartitionWrite { .. } if timed => return true,
                    kind if kind.uses_time() => return true,
                    _ => open.push(*child),
                }
            }
        }
        false
    }

    fn room<U: Data>(&mut self, id: NodeId) -> Result<Box<dyn Push<U>>> {
        if self.node(id)?.inputs.len() < 2 {
            return self.make(id);
        }
        if !self.merges.contains_key(&id) {
            let merge = Merge::<U>::new(self.make(id)?);
            self.merges.insert(id, Box::new(merge));
        }
        match self.merges.get(&id).and_then(|merge| merge.downcast_ref::<Merge<U>>()) {
            Some(merge) => Ok(Box::new(merge.way()?)),
            None => Err(mismatch()),
        }
    }

    fn make<U: Data>(&mut self, id: NodeId) -> Result<Box<dyn Push<U>>> {
        self.make_any(id)?.downcast::<Box<dyn Push<U>>>().map(|room| *room).map_err(|_| mismatch())
    }

    fn make_any(&mut self, id: NodeId) -> Result<Box<dyn Any>> {
        let Make::Room(make) = &self.node(id)?.make else { return Err(mismatch()) };
        let before = std::mem::replace(&mut self.current, id);
        let room = make(self);
        self.current = before;
        room
    }

    /// The present node's index among the sinks of the plan.
    pub(super) fn sink(&self) -> Result<usize> {
        self.part.sinks.get(&self.current).copied().ok_or_else(|| Error::bug("sink is not in the plan"))
    }

    /// The error policy of the present node.
    pub(super) fn guard(&self) -> Result<Guard> {
        let node = self.node(self.current)?;
        let policy = node.policy.clone().unwrap_or_default();
        let sink = match &policy {
            ErrorPolicy::DeadLetter { topic, .. } => self.part.dead_letters.get(topic).copied(),
            _ => None,
        };
        Ok(Guard::new(stage_label(&node.kind), policy, sink))
    }
}

/// The name under which a stage's errors are reported.
fn stage_label(kind: &Kind) -> Arc<str> {
    match kind {
        Kind::Source { name, .. }
        | Kind::RepartitionRead { name }
        | Kind::RepartitionWrite { name, .. }
        | Kind::Sink { name, .. } => name.as_str().into(),
        Kind::PerKey { options, .. } => options.table.as_str().into(),
        Kind::Window { options, .. } => options.table.as_str().into(),
        Kind::Process { options } => options.table.as_str().into(),
        Kind::Join { options } => options.table.as_str().into(),
        Kind::Operator { word, label } => label.clone().unwrap_or_else(|| (*word).into()),
        Kind::EventTime { word } | Kind::Port { word, .. } | Kind::Side { word } => (*word).into(),
    }
}

/// A room: erases the type of what it takes.
pub(super) fn room<T: Data>(room: impl Push<T> + 'static) -> Box<dyn Any> {
    let room: Box<dyn Push<T>> = Box::new(room);
    Box::new(room)
}

#[cold]
fn mismatch() -> Error {
    Error::bug("nodes of a topology do not fit each other")
}

/// Makes the stage of one task.
pub(super) fn assemble(part: &Part) -> Result<Box<dyn Stage>> {
    let mut heads = Vec::with_capacity(part.sources.len());
    let mut assembly = Assembly { part, current: NodeId(0), merges: BTreeMap::new() };
    for source in &part.sources {
        let Make::Head(make) = &assembly.node(*source)?.make else { return Err(mismatch()) };
        assembly.current = *source;
        heads.push(make(&mut assembly)?);
    }
    Ok(Box::new(Heads(heads)))
}

struct Heads(Vec<Box<dyn Ingest>>);

impl Stage for Heads {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.0.iter_mut().try_for_each(|head| head.open(state))
    }

    fn process(&mut self, source: usize, batch: &SourceBatch<'_>, cx: &mut Context<'_>) -> Result<()> {
        match self.0.get_mut(source) {
            Some(head) => head.process(batch, &mut cx.with_batch(source, batch)),
            None => Err(no_source(source)),
        }
    }

    fn heard(&mut self, source: usize, watermark: Watermark, cx: &mut Context<'_>) -> Result<()> {
        let Some(head) = self.0.get_mut(source) else { return Err(no_source(source)) };
        head.heard(watermark, &mut cx.of_input(Input::try_from(source).unwrap_or(Input::MAX)))
    }

    fn tick(&mut self, cx: &mut Context<'_>) -> Result<()> {
        for (source, head) in (0..).zip(&mut self.0) {
            head.tick(&mut cx.of_input(source))?;
        }
        Ok(())
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.0.iter_mut().try_for_each(|head| head.seal(cx))
    }
}

#[cold]
fn no_source(source: usize) -> Error {
    Error::bug(format!("stage has no such source: source={source}"))
}

/// Stands in for a stage that could not be made; says so when it is opened.
pub(super) struct Unmade(pub(super) Option<Error>);

impl Stage for Unmade {
    fn open(&mut self, _: &mut TaskState) -> Result<()> {
        Err(self.0.take().unwrap_or_else(mismatch))
    }

    fn process(&mut self, _: usize, _: &SourceBatch<'_>, _: &mut Context<'_>) -> Result<()> {
        Err(mismatch())
    }

    fn heard(&mut self, _: usize, _: Watermark, _: &mut Context<'_>) -> Result<()> {
        Err(mismatch())
    }

    fn tick(&mut self, _: &mut Context<'_>) -> Result<()> {
        Err(mismatch())
    }

    fn seal(&mut self, _: &mut Context<'_>) -> Result<()> {
        Err(mismatch())
    }
}

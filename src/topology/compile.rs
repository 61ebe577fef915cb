//! Checks a program and cuts it into subtopologies.

use super::assembly::{Part, Unmade, assemble};
use super::copartition::copartitioned;
use super::describe::Description;
use super::graph::{Graph, Kind, Node, NodeId, repartition_topic};
use super::plan::{Delivery, SinkPlan, SourcePlan, StartPolicy, Subtopology, Topology};
use crate::processor::{ErrorPolicy, stable_hash};
use onceflow_types::{Error, Name, Result, check_topic};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name of every sink for dead letters; their topics tell them apart.
const DEAD_LETTERS: &str = "dead-letters";

pub(super) fn compile(graph: &Graph) -> Result<Topology> {
    let (nodes, children) = (Arc::<[Node]>::from(graph.nodes.clone()), children_of(&graph.nodes));
    check_names(&nodes)?;
    let timed = timed(&nodes, &children);
    let mut cut = Cut { job: &graph.job, nodes, children: children.into(), timed: timed.into(), named: vec![] };
    let mut subtopologies = vec![];
    for members in components(&cut.nodes) {
        subtopologies.push(cut.subtopology(&members)?);
    }
    if subtopologies.is_empty() {
        return Err(Error::invalid(format!("job has no source: job={}", graph.job)));
    }
    subtopologies.sort_by(|one, other| one.name.cmp(&other.name));
    check_subtopologies(&subtopologies)?;
    let description = Description::new(&graph.job, cut.named, &cut.nodes);
    let hash = stable_hash(description.shape().as_bytes());
    Ok(Topology { job: graph.job.clone(), subtopologies, hash, description: Arc::new(description) })
}

fn children_of(nodes: &[Node]) -> Vec<Vec<NodeId>> {
    let mut children = vec![vec![]; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        for input in &node.inputs {
            if let Some(children) = children.get_mut(input.0) {
                children.push(NodeId(at));
            }
        }
    }
    children
}

/// Which nodes have something behind them, or are something, that works with time; through repartitions, too.
fn timed(nodes: &[Node], children: &[Vec<NodeId>]) -> Vec<bool> {
    let reads = nodes.iter().enumerate().filter_map(|(at, node)| match &node.kind {
        Kind::RepartitionRead { name } => Some((name, at)),
        _ => None,
    });
    let reads: BTreeMap<&Name, usize> = reads.collect();
    let mut timed = vec![false; nodes.len()];
    // Whatever takes a node's records comes after it, and so does the reading half of a repartition.
    for (at, node) in nodes.iter().enumerate().rev() {
        let behind = children.get(at).into_iter().flatten().map(|child| child.0);
        let through = match &node.kind {
            Kind::RepartitionWrite { name, .. } => reads.get(name).copied(),
            _ => None,
        };
        let is_timed =
            node.kind.uses_time() || behind.chain(through).any(|next| timed.get(next).copied().unwrap_or(false));
        if let Some(place) = timed.get_mut(at) {
            *place = is_timed;
        }
    }
    timed
}

/// The connected parts of the graph, each in the order of the program. The halves of a repartition are not connected.
fn components(nodes: &[Node]) -> Vec<Vec<NodeId>> {
    // Inputs come before the nodes that use them, except that `merge` may join parts: follow it to a fixed point.
    let mut part: Vec<usize> = (0..nodes.len()).collect();
    loop {
        let mut changed = false;
        for (at, node) in nodes.iter().enumerate() {
            let around = node.inputs.iter().map(|input| input.0).chain([at]);
            let least = around.clone().filter_map(|id| part.get(id).copied()).min().unwrap_or(at);
            for id in around {
                if let Some(part) = part.get_mut(id).filter(|part| **part != least) {
                    (*part, changed) = (least, true);
                }
            }
        }
        if !changed {
            break;
        }
    }
    let mut parts: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
    for (at, part) in part.into_iter().enumerate() {
        parts.entry(part).or_default().push(NodeId(at));
    }
    parts.into_values().collect()
}

/// Sources, tables, sinks and repartitions each have names of their own kind.
fn check_names(nodes: &[Node]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for node in nodes {
        let (what, name) = match &node.kind {
            Kind::Source { named: false, topic, .. } => {
                check_topic(topic)?;
                return Err(Error::invalid(format!("topic cannot be the source's name, give it one: topic={topic}")));
            }
            Kind::Source { name, .. } => ("source", name),
            Kind::RepartitionRead { name } => ("repartition", name),
            Kind::PerKey { options, .. } => ("operator", &options.table),
            Kind::Window { options, .. } => ("operator", &options.table),
            Kind::Process { options } => ("operator", &options.table),
            Kind::Join { options } => ("operator", &options.table),
            Kind::Sink { name, .. } => ("sink", name),
            Kind::RepartitionWrite { .. }
            | Kind::Operator { .. }
            | Kind::EventTime { .. }
            | Kind::Port { .. }
            | Kind::Side { .. } => continue,
        };
        if !seen.insert((what, name.as_str())) {
            return Err(Error::invalid(format!("{what} name is used twice: name={name}")));
        }
    }
    Ok(())
}

fn check_subtopologies(subtopologies: &[Subtopology]) -> Result<()> {
    let twice = subtopologies.windows(2).find(|pair| matches!(pair, [one, other] if one.name == other.name));
    if let Some([one, _]) = twice {
        return Err(Error::invalid(format!(
            "two subtopologies have one name, name a source or a subtopology differently: name={}",
            one.name
        )));
    }
    Ok(())
}

struct Cut<'g> {
    job: &'g Name,
    nodes: Arc<[Node]>,
    children: Arc<[Vec<NodeId>]>,
    timed: Arc<[bool]>,
    /// The subtopologies so far: name and nodes.
    named: Vec<(Name, Vec<NodeId>)>,
}

impl Cut<'_> {
    fn subtopology(&mut self, members: &[NodeId]) -> Result<Subtopology> {
        let mut part = Part {
            nodes: self.nodes.clone(),
            children: self.children.clone(),
            timed: self.timed.clone(),
            sources: vec![],
            sinks: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
        };
        let (mut sources, mut sinks, mut tables) = (vec![], vec![], vec![]);
        let nodes = self.nodes.clone();
        for (id, node) in members.iter().filter_map(|id| Some((*id, nodes.get(id.0)?))) {
            let timed = self.timed.get(id.0).copied().unwrap_or(false);
            if let Some(source) = self.source(node, timed) {
                part.sources.push(id);
                sources.push(source);
            }
            if let Some(sink) = self.sink(node, timed) {
                part.sinks.insert(id, sinks.len());
                sinks.push(sink);
            }
            tables.extend(node.kind.table().cloned());
        }
        for node in members.iter().filter_map(|id| nodes.get(id.0)) {
            if let Some(ErrorPolicy::DeadLetter { topic, delivery }) = &node.policy {
                add_dead_letters(topic, *delivery, &mut part.dead_letters, &mut sinks)?;
            }
        }
        self.check_topics(&sources, &sinks)?;
        let copartitioned = copartitioned(&nodes, members, &part.sources);
        let name = self.name(members, &sources)?;
        self.named.push((name.clone(), members.to_vec()));
        // Made once here, so that a program that cannot be made is refused now and not in a task.
        assemble(&part)?;
        let build = move || assemble(&part).unwrap_or_else(|error| Box::new(Unmade(Some(error))));
        let timed = sources.iter().any(|source| source.timed);
        Ok(Subtopology { name, sources, copartitioned, sinks, tables, timed, build: Arc::new(build) })
    }

    fn source(&self, node: &Node, timed: bool) -> Option<SourcePlan> {
        match &node.kind {
            Kind::Source { name, topic, start, .. } => {
                Some(SourcePlan { name: name.clone(), topic: topic.clone(), internal: false, start: *start, timed })
            }
            Kind::RepartitionRead { name } => Some(SourcePlan {
                name: name.clone(),
                topic: repartition_topic(self.job, name),
                internal: true,
                start: StartPolicy::Earliest,
                timed,
            }),
            _ => None,
        }
    }

    fn sink(&self, node: &Node, timed: bool) -> Option<SinkPlan> {
        match &node.kind {
            Kind::Sink { name, topic, delivery } => Some(SinkPlan {
                name: name.clone(),
                topic: topic.clone(),
                internal: false,
                delivery: *delivery,
                queues: None,
                timed: false,
            }),
            Kind::RepartitionWrite { name, queues } => Some(SinkPlan {
                name: name.clone(),
                topic: repartition_topic(self.job, name),
                internal: true,
                delivery: Delivery::Outbox { framed: true },
                queues: Some(*queues),
                timed,
            }),
            _ => None,
        }
    }

    fn check_topics(&self, sources: &[SourcePlan], sinks: &[SinkPlan]) -> Result<()> {
        let mut read = BTreeSet::new();
        for source in sources {
            self.check_topic(&source.topic, source.internal)?;
            if !read.insert(&source.topic) {
                return Err(Error::invalid(format!(
                    "topic is read twice in one subtopology, use one stream twice: topic={}",
                    source.topic
                )));
            }
        }
        let mut written = BTreeSet::new();
        for sink in sinks {
            self.check_topic(&sink.topic, sink.internal)?;
            if sink.queues == Some(0) {
                return Err(Error::invalid(format!("repartition needs at least one queue: name={}", sink.name)));
            }
            if !written.insert((&sink.name, &sink.topic)) {
                return Err(Error::invalid(format!("sink name is taken: name={} topic={}", sink.name, sink.topic)));
            }
        }
        Ok(())
    }

    /// The job's own topics are its own.
    fn check_topic(&self, topic: &str, internal: bool) -> Result<()> {
        check_topic(topic)?;
        let rest = topic.strip_prefix(self.job.as_str());
        let reserved = ["-journal-", "-repartition-", "-barrier", "-snapshot"];
        if !internal && rest.is_some_and(|rest| reserved.iter().any(|word| rest.starts_with(word))) {
            return Err(Error::invalid(format!("topic is reserved for the job itself: topic={topic}")));
        }
        Ok(())
    }

    fn name(&self, members: &[NodeId], sources: &[SourcePlan]) -> Result<Name> {
        let given: BTreeSet<&Name> = members
            .iter()
            .filter_map(|id| match &self.nodes.get(id.0)?.kind {
                Kind::Source { subtopology, .. } => subtopology.as_ref(),
                _ => None,
            })
            .collect();
        if given.len() > 1 {
            return Err(Error::invalid(format!("connected sources name different subtopologies: given={given:?}")));
        }
        let name = given.first().copied().or(sources.first().map(|source| &source.name));
        name.cloned().ok_or_else(|| Error::bug("subtopology without a source"))
    }
}

fn add_dead_letters(
    topic: &Arc<str>,
    delivery: Delivery,
    indexes: &mut BTreeMap<Arc<str>, usize>,
    sinks: &mut Vec<SinkPlan>,
) -> Result<()> {
    match indexes.get(topic).and_then(|index| sinks.get(*index)) {
        Some(sink) if sink.delivery == delivery => Ok(()),
        Some(_) => Err(Error::invalid(format!("dead letter topic has two kinds of delivery: topic={topic}"))),
        None => {
            indexes.insert(topic.clone(), sinks.len());
            let name = Name::new(DEAD_LETTERS)?;
            sinks.push(SinkPlan { name, topic: topic.clone(), internal: false, delivery, queues: None, timed: false });
            Ok(())
        }
    }
}

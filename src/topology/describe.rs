//! A topology as text, as a diagram, and as what its hash is made of.

use super::graph::{Kind, Node, NodeId, SourceClock, repartition_topic};
use super::plan::{Delivery, StartPolicy};
use crate::processor::{Emit, ErrorPolicy, WindowOptions};
use onceflow_types::Name;
use std::collections::{BTreeMap, BTreeSet};

/// What is known about a compiled topology without running it.
#[derive(Debug)]
pub(super) struct Description {
    job: Name,
    parts: Vec<(Name, Vec<Line>)>,
}

/// One node.
#[derive(Debug)]
struct Line {
    id: NodeId,
    /// Its number in the text, from 1 over the whole job.
    number: usize,
    /// What it is: a word, and a name if it has one.
    title: String,
    details: Vec<String>,
    inputs: Vec<NodeId>,
    /// What must agree between instances; `None` for a node without state and name.
    identity: Option<String>,
    shape: Shape,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Shape {
    Source,
    RepartitionRead(Name),
    RepartitionWrite(Name),
    Operator,
    Table,
    Sink,
}

impl Description {
    /// Describes subtopologies, given by name and nodes in the order of the program.
    pub(super) fn new(job: &Name, parts: Vec<(Name, Vec<NodeId>)>, nodes: &[Node]) -> Self {
        let mut number = 0;
        let mut line = |id: NodeId| {
            number += 1;
            nodes.get(id.0).map(|node| Line::new(id, number, job, node))
        };
        let parts = parts
            .into_iter()
            .map(|(name, members)| (name, members.into_iter().filter_map(&mut line).collect()))
            .collect();
        Description { job: job.clone(), parts }
    }

    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.parts.iter().flat_map(|(_, lines)| lines)
    }

    fn numbers(&self) -> BTreeMap<NodeId, usize> {
        self.lines().map(|line| (line.id, line.number)).collect()
    }

    pub(super) fn text(&self) -> String {
        let numbers = self.numbers();
        let mut text = vec![format!("job {}", self.job)];
        for (name, lines) in &self.parts {
            text.push(format!("\nsubtopology {name}"));
            text.extend(lines.iter().map(|line| line.text(&numbers)));
        }
        text.join("\n") + "\n"
    }

    pub(super) fn mermaid(&self) -> String {
        let numbers = self.numbers();
        let mut text = vec!["flowchart LR".to_owned()];
        for (at, (name, lines)) in self.parts.iter().enumerate() {
            text.push(format!("  subgraph s{at} [\"{name}\"]"));
            text.extend(lines.iter().map(Line::mermaid));
            text.push("  end".to_owned());
        }
        for line in self.lines() {
            let inputs = line.inputs.iter().filter_map(|id| numbers.get(id));
            text.extend(inputs.map(|input| format!("  n{input} --> n{}", line.number)));
        }
        text.extend(self.repartitions().into_iter().map(|(write, read)| format!("  n{write} -.-> n{read}")));
        text.join("\n") + "\n"
    }

    /// The numbers of the two halves of each repartition.
    fn repartitions(&self) -> Vec<(usize, usize)> {
        let reads: BTreeMap<&Name, usize> = self
            .lines()
            .filter_map(|line| match &line.shape {
                Shape::RepartitionRead(name) => Some((name, line.number)),
                _ => None,
            })
            .collect();
        self.lines()
            .filter_map(|line| match &line.shape {
                Shape::RepartitionWrite(name) => Some((line.number, *reads.get(name)?)),
                _ => None,
            })
            .collect()
    }

    /// The nodes that must agree between instances, each with the nearest such nodes before it. One line a node, sorted:
    /// neither functions, nor operators without state, nor the order of the program show in it.
    pub(super) fn shape(&self) -> String {
        let lines: BTreeMap<NodeId, &Line> = self.lines().map(|line| (line.id, line)).collect();
        let mut shapes = BTreeSet::new();
        for (name, part) in &self.parts {
            for line in part {
                let Some(identity) = &line.identity else { continue };
                let mut before = BTreeSet::new();
                nearest(line, &lines, &mut before);
                shapes.insert(format!("{name}: {identity} <- {before:?}\n"));
            }
        }
        let mut shape = format!("job {}\n", self.job);
        shape.extend(shapes);
        shape
    }
}

fn nearest<'l>(line: &'l Line, lines: &BTreeMap<NodeId, &'l Line>, found: &mut BTreeSet<&'l str>) {
    let mut open: Vec<&NodeId> = line.inputs.iter().collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        let Some(input) = lines.get(id).filter(|_| seen.insert(id)) else { continue };
        match &input.identity {
            Some(identity) => {
                found.insert(identity);
            }
            None => open.extend(&input.inputs),
        }
    }
}

impl Line {
    fn new(id: NodeId, number: usize, job: &Name, node: &Node) -> Line {
        let mut details = details(&node.kind, job);
        if let Some(policy) = node.policy.as_ref().filter(|policy| **policy != ErrorPolicy::Fail) {
            details.push(format!("on_error={policy}"));
        }
        let identity = identity(&node.kind);
        let inputs = node.inputs.clone();
        Line { id, number, title: title(&node.kind), details, inputs, identity, shape: shape(&node.kind) }
    }

    fn text(&self, numbers: &BTreeMap<NodeId, usize>) -> String {
        let details = if self.details.is_empty() { String::new() } else { format!(": {}", self.details.join(" ")) };
        let inputs: Vec<_> = self.inputs.iter().filter_map(|id| numbers.get(id)).map(usize::to_string).collect();
        let inputs = if inputs.is_empty() { String::new() } else { format!(" <- {}", inputs.join(", ")) };
        format!("  {} {}{details}{inputs}", self.number, self.title)
    }

    fn mermaid(&self) -> String {
        let (open, close) = match self.shape {
            Shape::Source | Shape::RepartitionRead(_) => ("([", "])"),
            Shape::Sink | Shape::RepartitionWrite(_) => ("[/", "/]"),
            Shape::Table => ("[(", ")]"),
            Shape::Operator => ("[", "]"),
        };
        let label: Vec<&str> = [&self.title].into_iter().chain(&self.details).map(String::as_str).collect();
        format!("    n{}{open}\"{}\"{close}", self.number, label.join("<br>").replace('"', "'"))
    }
}

fn title(kind: &Kind) -> String {
    match kind {
        Kind::Source { name, .. } => format!("source {name}"),
        Kind::RepartitionRead { name } => format!("repartitioned {name}"),
        Kind::RepartitionWrite { name, .. } => format!("repartition {name}"),
        Kind::Operator { word, label: Some(label) } => format!("{word} {label}"),
        Kind::Operator { word, label: None }
        | Kind::EventTime { word }
        | Kind::Port { word, .. }
        | Kind::Side { word } => (*word).to_owned(),
        Kind::PerKey { word, options } => format!("{word} {}", options.table),
        Kind::Window { word, options } => format!("windowed {word} {}", options.table),
        Kind::Process { options } => format!("process {}", options.table),
        Kind::Join { options } => format!("{} join {}", options.kind.word(), options.table),
        Kind::Sink { name, .. } => format!("sink {name}"),
    }
}

fn details(kind: &Kind, job: &Name) -> Vec<String> {
    match kind {
        Kind::Source { topic, start, tags, time, .. } => {
            let mut details = vec![format!("topic={topic}"), format!("start={}", start_word(*start))];
            details.extend(tags.as_ref().map(|tags| format!("tags={}", tags.join(","))));
            if *time != SourceClock::default() {
                details.push(format!("out_of_orderness_ms={}", time.out_of_orderness.as_millis()));
                let idle = time.idle_timeout.map_or("none".to_owned(), |timeout| timeout.as_millis().to_string());
                details.push(format!("idle_timeout_ms={idle}"));
            }
            details
        }
        Kind::RepartitionRead { name } => vec![format!("topic={}", repartition_topic(job, name))],
        Kind::RepartitionWrite { name, queues } => {
            vec![format!("topic={}", repartition_topic(job, name)), format!("queues={queues}")]
        }
        Kind::Operator { .. }
        | Kind::EventTime { .. }
        | Kind::Port { .. }
        | Kind::Side { .. }
        | Kind::Process { .. } => vec![],
        Kind::PerKey { options, .. } => {
            let emit = match options.emit {
                Emit::EveryUpdate => "every-update",
                Emit::PerEpoch => "per-epoch",
            };
            let time_to_live = options.time_to_live.map(|time| format!("time_to_live={time}"));
            [format!("emit={emit}")].into_iter().chain(time_to_live).collect()
        }
        Kind::Window { options, .. } => window_details(options),
        Kind::Join { options } => vec![options.rule.to_string()],
        Kind::Sink { topic, delivery, .. } => {
            vec![format!("topic={topic}"), format!("delivery={}", delivery_word(*delivery))]
        }
    }
}

fn shape(kind: &Kind) -> Shape {
    match kind {
        Kind::Source { .. } => Shape::Source,
        Kind::RepartitionRead { name } => Shape::RepartitionRead(name.clone()),
        Kind::RepartitionWrite { name, .. } => Shape::RepartitionWrite(name.clone()),
        Kind::Operator { .. } | Kind::EventTime { .. } | Kind::Port { .. } | Kind::Side { .. } => Shape::Operator,
        Kind::PerKey { .. } | Kind::Window { .. } | Kind::Process { .. } | Kind::Join { .. } => Shape::Table,
        Kind::Sink { .. } => Shape::Sink,
    }
}

fn identity(kind: &Kind) -> Option<String> {
    match kind {
        Kind::Source { name, topic, .. } => Some(format!("source {name} {topic}")),
        Kind::RepartitionRead { name } => Some(format!("repartitioned {name}")),
        Kind::RepartitionWrite { name, queues } => Some(format!("repartition {name} {queues}")),
        // Which side is which must agree: swapped ones read each other's rows.
        Kind::Side { word } => Some((*word).to_owned()),
        Kind::Operator { .. } | Kind::EventTime { .. } | Kind::Port { .. } => None,
        Kind::PerKey { word, options } => Some(format!("{word} {}", options.table)),
        Kind::Process { options } => Some(format!("process {}", options.table)),
        Kind::Window { word, options } => Some(format!("windowed {word} {} {}", options.table, options.windows)),
        Kind::Join { options } => Some(format!("{} join {} {}", options.kind.word(), options.table, options.rule)),
        Kind::Sink { name, topic, delivery } => Some(format!("sink {name} {topic} {}", delivery_word(*delivery))),
    }
}

fn window_details(options: &WindowOptions) -> Vec<String> {
    let WindowOptions { windows, rule, .. } = options;
    let mut details = vec![format!("windows={windows}"), format!("trigger={}", rule.trigger)];
    if rule.deltas {
        details.push("deltas".to_owned());
    }
    if rule.lateness > 0 {
        details.push(format!("lateness_ms={}", rule.lateness));
    }
    details
}

fn start_word(start: StartPolicy) -> String {
    match start {
        StartPolicy::Earliest => "earliest".into(),
        StartPolicy::Latest => "latest".into(),
        StartPolicy::Timestamp(time) => format!("timestamp({time})"),
    }
}

fn delivery_word(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Transactional => "transactional",
        Delivery::Outbox { framed: false } => "outbox",
        Delivery::Outbox { framed: true } => "outbox-framed",
    }
}

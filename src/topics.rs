//! The names of the topics and groups that a job makes, for tools and for opening the log.

use onceflow_types::Name;

/// Where the tasks of a subtopology keep their journals: `<job>-journal-<subtopology>`.
pub fn journal(job: &Name, subtopology: &Name) -> String {
    format!("{job}-journal-{subtopology}")
}

/// Where barriers are written, one queue a broker: `<job>-barrier`.
pub fn barrier(job: &Name) -> String {
    format!("{job}-barrier")
}

/// Where the snapshots of all tasks are written, one queue a broker: `<job>-snapshot`.
pub fn snapshot(job: &Name) -> String {
    format!("{job}-snapshot")
}

/// The producer group of a job; part of the identity of its half messages.
pub fn producer_group(job: &Name) -> String {
    format!("{job}-producer")
}

/// The consumer group under which committed offsets are reported.
pub fn consumer_group(job: &Name) -> String {
    format!("{job}-consumer")
}

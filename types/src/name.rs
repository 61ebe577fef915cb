//! Names that end up in topics, files and metrics.

use crate::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Longest job id, in bytes.
pub const JOB_ID_BYTES_MAX: usize = 64;
/// Longest name of an operator, sink or store, in bytes. With the job id and the fixed words around it an internal
/// topic stays within the 127 bytes that RocketMQ allows (`TopicValidator`).
pub const NAME_BYTES_MAX: usize = 40;
/// Longest topic name, in bytes (RocketMQ `TopicValidator`).
pub const TOPIC_BYTES_MAX: usize = 127;

/// A checked name of letters, digits, `_` and `-`: it cannot escape a directory, a topic or a metric label.
///
/// ```
/// use onceflow_types::Name;
///
/// assert_eq!(Name::new("running-sum")?.as_str(), "running-sum");
/// assert!(Name::new("../etc").is_err());
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks a name of an operator, sink or store.
    ///
    /// # Errors
    /// `Invalid` when it is empty, longer than [`NAME_BYTES_MAX`] or has other characters.
    pub fn new(name: impl AsRef<str>) -> Result<Name> {
        Name::checked(name.as_ref(), NAME_BYTES_MAX, "name")
    }

    /// Checks a job id.
    ///
    /// # Errors
    /// `Invalid` when it is empty, longer than [`JOB_ID_BYTES_MAX`] or has other characters.
    pub fn job(id: impl AsRef<str>) -> Result<Name> {
        Name::checked(id.as_ref(), JOB_ID_BYTES_MAX, "job id")
    }

    fn checked(name: &str, bytes_max: usize, what: &str) -> Result<Name> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || name.len() > bytes_max || !name.bytes().all(allowed) {
            return Err(Error::invalid(format!("{what} must be 1 to {bytes_max} of A-Z a-z 0-9 _ -: given={name:?}")));
        }
        Ok(Name(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks a topic name by RocketMQ's rule `^[%|a-zA-Z0-9_-]+$`, at most [`TOPIC_BYTES_MAX`] bytes.
///
/// # Errors
/// `Invalid` when the name breaks the rule.
pub fn check_topic(topic: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'%' | b'|');
    if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX || !topic.bytes().all(allowed) {
        return Err(Error::invalid(format!(
            "topic must be 1 to {TOPIC_BYTES_MAX} of A-Z a-z 0-9 _ - % |: given={topic:?}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_escape_are_refused() {
        for bad in ["", ".", "..", "a/b", "a\\b", "a\0b", "a b", "é", "a.", &"x".repeat(41)] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
        assert!(Name::job("x".repeat(64)).is_ok());
        assert!(Name::job("x".repeat(65)).is_err());
    }

    #[test]
    fn topics_follow_the_brokers_rule() {
        assert!(check_topic("%RETRY%group-1").is_ok());
        assert!(check_topic("a.b").is_err());
        assert!(check_topic(&"t".repeat(128)).is_err());
    }
}

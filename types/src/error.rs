//! One error type for the workspace. Its kind says what the caller must do.

use std::error::Error as StdError;
use std::fmt;

/// What the caller must do about an [`Error`]. A new kind is added only when some caller would act differently on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The outcome is unknown or the other side is away: do the same again, within a bound.
    Retry,
    /// Someone newer owns the task: stop working on it.
    Fenced,
    /// Local data cannot be used: drop it and rebuild it from the journal.
    Corrupt,
    /// Acknowledged data is gone: stop, keep everything, ask the operator.
    DataLoss,
    /// Input, configuration or environment is wrong: fix it and start again.
    Invalid,
    /// This record only: hand it to the stage's error policy.
    Record,
    /// A broken invariant of Onceflow itself: stop and report.
    Bug,
}

impl ErrorKind {
    /// The kind as one lower-case word, for metrics and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Retry => "retry",
            ErrorKind::Fenced => "fenced",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::DataLoss => "data-loss",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Record => "record",
            ErrorKind::Bug => "bug",
        }
    }
}

/// An error with a [kind](ErrorKind), a message and, where there is one, a source. One word wide.
///
/// Messages are lower case, without a full stop, values last: `epoch gap: stored=7 given=9`.
///
/// ```
/// use onceflow_types::{Error, ErrorKind};
///
/// let error = Error::invalid(format!("topic has no queues: topic={}", "payments"));
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.to_string(), "topic has no queues: topic=payments");
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of everything in Onceflow that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! constructors {
    ($($name:ident $kind:ident),*) => {$(
        #[doc = concat!("An error of kind [`ErrorKind::", stringify!($kind), "`].")]
        #[cold]
        pub fn $name(message: impl Into<String>) -> Self {
            Error::new(ErrorKind::$kind, message)
        }
    )*};
}

impl Error {
    /// An error without a source.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner { kind, message: message.into(), source: None }))
    }

    constructors!(retry Retry, fenced Fenced, corrupt Corrupt, data_loss DataLoss, invalid Invalid, record Record, bug Bug);

    /// Attaches the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Puts `context` before the message: `context: message`. Kind and source stay.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message and all sources below it, joined by `: `. For the last line a person sees.
    pub fn report(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(source) = next {
            text.push_str(": ");
            text.push_str(&source.to_string());
            next = source.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.as_str(), self.report())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_every_cause_once() {
        let disk = std::io::Error::other("disk full");
        let error = Error::corrupt("store cannot be opened: path=/a").with_source(disk).context("task sum-0");
        assert_eq!(error.report(), "task sum-0: store cannot be opened: path=/a: disk full");
        assert_eq!(format!("{error:?}"), "corrupt: task sum-0: store cannot be opened: path=/a: disk full");
    }

    #[test]
    fn an_error_is_one_word_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}

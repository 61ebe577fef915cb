//! What fjall's errors mean to the caller.

use onceflow_types::{Error, Result};
use std::io::{self, ErrorKind};
use std::path::Path;

/// What an operator can do about a failed file operation, as a part of a message; empty where we do not know it.
pub(super) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ", free space and start again",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ", make it writable for this user",
        ErrorKind::NotADirectory => ", a part of the path is a file",
        ErrorKind::InvalidFilename => ", choose a shorter path",
        _ => "",
    }
}

/// The file operation that failed, and what can be done about it.
fn operation(error: &fjall::Error) -> Option<(&io::Error, &'static str)> {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => Some((error, advice(error))),
        _ => None,
    }
}

/// Of an opening.
pub(super) fn opening(path: &Path, error: fjall::Error) -> Error {
    let advice = operation(&error).map_or("", |(_, advice)| advice);
    let text = format!("log cannot be opened{advice}: path={}", path.display());
    let fault = match &error {
        fjall::Error::Locked => Error::fenced(text),
        // A full disk damages nothing.
        _ if !advice.is_empty() => Error::invalid(text),
        fjall::Error::Io(_) | fjall::Error::InvalidVersion(_) => Error::invalid(text),
        _ => Error::data_loss(text),
    };
    fault.with_source(error)
}

/// Of a read: a disk that answers with an error may answer later, damage will not heal.
pub(super) fn reading(error: fjall::Error) -> Error {
    let text = "log cannot be read";
    let fault = match &error {
        fjall::Error::Io(_) | fjall::Error::Storage(fjall::LsmError::Io(_)) => Error::retry(text),
        _ => Error::data_loss(text),
    };
    fault.with_source(error)
}

/// Of a write: its outcome is unknown, unless fjall refused to start it.
pub(super) fn writing(error: fjall::Error) -> Error {
    match &error {
        fjall::Error::Poisoned => failed_before().with_source(error),
        _ => {
            let advice = operation(&error).map_or("", |(_, advice)| advice);
            Error::retry(format!("log cannot be written{advice}")).with_source(error)
        }
    }
}

/// Of a sync, for each of the writes that waited for it: they may or may not survive.
pub(super) fn syncing(error: &fjall::Error) -> Error {
    let advice = match error {
        // fjall does not say why a write in the background has failed.
        fjall::Error::Poisoned => ", check the disk, free space if it is full",
        _ => operation(error).map_or("", |(_, advice)| advice),
    };
    Error::retry(format!("log cannot be synced{advice}: {error}"))
}

/// After a failed write or sync nothing can be known about the file any more (fsyncgate), so nothing more is written.
pub(super) fn failed_before() -> Error {
    Error::invalid("log has failed to write before, check the disk, free space if it is full, and open the log again")
}

/// Turns a number read from disk into a typed error where it cannot be.
pub(super) fn damaged<T>(what: &str, result: Result<T>) -> Result<T> {
    result.map_err(|error| Error::data_loss(format!("{what} is damaged")).with_source(error))
}

//! A barrier for panics of the engines that panic on damaged files.

use crate::files::advice_in_text;
use onceflow_types::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a call of an engine; a panic inside becomes `Corrupt` (rule 10), or `Invalid` when
/// the disk is full.
///
/// The engine may be left in any state, which is why callers treat the error like every other `Corrupt`: the handle is
/// dropped. Has no effect in programs built with `panic = "abort"`.
pub(crate) fn contain<T>(engine: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        let advice = advice_in_text(text);
        let message = format!("{engine} panicked{advice}: {text}");
        Err(if advice.is_empty() { Error::corrupt(message) } else { Error::invalid(message) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_typed_error() {
        let error = contain("engine", || -> Result<()> { panic!("page {}", 7) }).unwrap_err();
        assert_eq!(error.kind(), onceflow_types::ErrorKind::Corrupt);
        assert_eq!(error.to_string(), "engine panicked: page 7");
    }
}

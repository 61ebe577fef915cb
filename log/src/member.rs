//! Who shares a job's work.

use onceflow_types::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Longest member id, in bytes.
pub const MEMBER_BYTES_MAX: usize = 127;

/// The name of one process in a group of processes that share work. Two processes that are alive at the same time must
/// not have the same one; a process that is started again in its old place may.
///
/// ```
/// use onceflow_log::MemberId;
///
/// assert_eq!(MemberId::new("host-1-00c0ffee")?.as_str(), "host-1-00c0ffee");
/// assert!(MemberId::new("two words").is_err());
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(Arc<str>);

impl MemberId {
    /// Checks a member id.
    ///
    /// # Errors
    /// `Invalid` when it is empty, longer than [`MEMBER_BYTES_MAX`] or has other characters than letters, digits and
    /// `. _ - @ :`.
    pub fn new(id: impl AsRef<str>) -> Result<MemberId> {
        let id = id.as_ref();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@:".contains(&byte);
        if id.is_empty() || id.len() > MEMBER_BYTES_MAX || !id.bytes().all(allowed) {
            return Err(Error::invalid(format!(
                "a member id must be 1 to {MEMBER_BYTES_MAX} of A-Z a-z 0-9 . _ - @ : given={id:?}"
            )));
        }
        Ok(MemberId(id.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

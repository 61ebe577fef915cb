//! The small files of a task's directory, byte by byte. All numbers are those of [`wire`](onceflow_types::wire).
//!
//! ```text
//! FORMAT   magic        8 bytes  "1flowfmt"
//!          version      u16      1
//!          backend      text     at most 40 bytes
//!          job          text     a job id
//!          subtopology  text     a name
//!          broker       text     at most 255 bytes
//!          queue        u32
//!          checksum     u32      CRC32C of all before it
//!
//! STATUS   magic        8 bytes  "1flowsta"
//!          version      u16      1
//!          state        u8       0 fresh, 1 open, 2 clean
//!          epoch        u64      of the last commit; 0 unless clean
//!          point        u32      CRC32C of the stored commit point; 0 unless clean
//!          checksum     u32      CRC32C of all before it
//! ```

use onceflow_types::wire::{Decoder, Encode, checksum};
use onceflow_types::{BROKER_BYTES_MAX, Epoch, Error, JOB_ID_BYTES_MAX, NAME_BYTES_MAX, Name, Result, TaskId};
use std::path::Path;

/// What the lock file holds: a directory with it is ours, also when its `FORMAT` is damaged.
pub(crate) const LOCK_MAGIC: &[u8] = b"onceflow state store lock\n";

const FORMAT_MAGIC: &[u8; 8] = b"1flowfmt";
const STATUS_MAGIC: &[u8; 8] = b"1flowsta";
/// Version of both files, and of how the disk backends lay out keys, values and the point.
const FORMAT_VERSION: u16 = 1;
const BACKEND_BYTES_MAX: usize = 40;
const CHECKSUM_BYTES: usize = 4;

/// Whose a directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Format {
    pub(crate) backend: String,
    pub(crate) job: Name,
    pub(crate) task: TaskId,
}

impl Format {
    pub(crate) fn new(backend: &str, job: &Name, task: &TaskId) -> Format {
        Format { backend: backend.to_owned(), job: job.clone(), task: task.clone() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = start(FORMAT_MAGIC);
        to.put_str(&self.backend);
        to.put_str(self.job.as_str());
        to.put_str(self.task.subtopology.as_str());
        to.put_str(&self.task.broker);
        to.put_u32(self.task.queue);
        finish(to)
    }

    /// `Invalid` for what is not ours or newer than this program, `Corrupt` for what is ours and damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Format> {
        let mut from = open(bytes, FORMAT_MAGIC)?;
        let backend = from.str(BACKEND_BYTES_MAX)?.to_owned();
        let job = Name::job(from.str(JOB_ID_BYTES_MAX)?).map_err(bad_name)?;
        let subtopology = Name::new(from.str(NAME_BYTES_MAX)?).map_err(bad_name)?;
        let broker = from.str(BROKER_BYTES_MAX)?.into();
        let task = TaskId { subtopology, broker, queue: from.u32()? };
        from.finish()?;
        Ok(Format { backend, job, task })
    }

    /// Whether the bytes begin like a format file of any version.
    pub(crate) fn is_ours(bytes: &[u8]) -> bool {
        bytes.starts_with(FORMAT_MAGIC)
    }

    /// `Invalid`, with what to do, when the directory belongs to another job, task or backend.
    pub(crate) fn check_wanted(&self, wanted: &Format, path: &Path) -> Result<()> {
        let foreign = |what: &str, found: &dyn std::fmt::Display, wanted: &dyn std::fmt::Display, advice: &str| {
            Err(Error::invalid(format!(
                "state directory belongs to another {what}, {advice}: found={found} wanted={wanted} path={}",
                path.display()
            )))
        };
        if self.job != wanted.job {
            return foreign("job", &self.job, &wanted.job, "choose another directory");
        }
        if self.task != wanted.task {
            return foreign("task", &self.task, &wanted.task, "choose another directory");
        }
        if self.backend != wanted.backend {
            let advice = "choose that backend, or remove the directory to rebuild it from the journal";
            return foreign("backend", &self.backend, &wanted.backend, advice);
        }
        Ok(())
    }
}

fn bad_name(error: Error) -> Error {
    Error::corrupt("bad name").with_source(error)
}

/// What is known about a store before its files are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// No commit was ever made: whatever lies in the data folder is void.
    Fresh,
    /// There are commits, and a handle is open, or was when the process ended.
    Open,
    /// Closed with everything on disk.
    Clean {
        /// The last commit.
        epoch: Epoch,
        /// Checksum of the stored point.
        point: u32,
    },
}

impl Status {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut to = start(STATUS_MAGIC);
        let (state, epoch, point) = match self {
            Status::Fresh => (0, Epoch::ZERO, 0),
            Status::Open => (1, Epoch::ZERO, 0),
            Status::Clean { epoch, point } => (2, epoch, point),
        };
        to.put_u8(state);
        to.put_u64(epoch.get());
        to.put_u32(point);
        finish(to)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Status> {
        // A status file only ever lies beside a format file that was accepted, so a wrong magic is damage.
        if !bytes.starts_with(STATUS_MAGIC) {
            return Err(Error::corrupt("not a status file"));
        }
        let mut from = open(bytes, STATUS_MAGIC)?;
        let (state, epoch, point) = (from.u8()?, Epoch::new(from.u64()?), from.u32()?);
        from.finish()?;
        match (state, epoch, point) {
            (0, Epoch::ZERO, 0) => Ok(Status::Fresh),
            (1, Epoch::ZERO, 0) => Ok(Status::Open),
            (2, _, _) => Ok(Status::Clean { epoch, point }),
            _ => Err(Error::corrupt(format!("unknown status: state={state}"))),
        }
    }
}

fn start(magic: &[u8]) -> Vec<u8> {
    let mut to = magic.to_vec();
    to.put_u16(FORMAT_VERSION);
    to
}

fn finish(mut to: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&to);
    to.put_u32(sum);
    to
}

/// Checks magic, version and checksum, in this order, and returns what lies between.
fn open<'b>(bytes: &'b [u8], magic: &[u8]) -> Result<Decoder<'b>> {
    let mut from = Decoder::new(bytes);
    if from.take(magic.len()).ok() != Some(magic) {
        return Err(Error::invalid("not a file of a state store"));
    }
    let version = from.u16()?;
    let body_len = bytes.len().saturating_sub(CHECKSUM_BYTES);
    let (body, sum) = bytes.split_at(body_len);
    if Decoder::new(sum).u32()? != checksum(body) {
        return Err(Error::corrupt("bad checksum"));
    }
    if version != FORMAT_VERSION {
        return Err(Error::invalid(format!(
            "state store of another format, use the onceflow that wrote it or remove it: version={version} known={FORMAT_VERSION}"
        )));
    }
    let mut inside = Decoder::new(body);
    inside.take(magic.len() + size_of::<u16>())?;
    Ok(inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::ErrorKind;

    fn example() -> Format {
        let task = TaskId { subtopology: Name::new("sums").unwrap(), broker: "broker/ä".into(), queue: 7 };
        Format::new("fjall", &Name::job("payments").unwrap(), &task)
    }

    #[test]
    fn both_files_survive_and_every_flipped_or_missing_byte_is_noticed() {
        let clean = Status::Clean { epoch: Epoch::new(20), point: 0xfeed };
        assert_eq!(Format::decode(&example().encode()).unwrap(), example());
        for status in [Status::Fresh, Status::Open, clean] {
            assert_eq!(Status::decode(&status.encode()).unwrap(), status);
        }
        for bytes in [example().encode(), clean.encode()] {
            let bad = |bytes: &[u8]| Format::decode(bytes).is_err() && Status::decode(bytes).is_err();
            for at in 0..bytes.len() {
                assert!(bad(&bytes[..at]), "cut at {at}");
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x10;
                assert!(bad(&flipped), "flipped at {at}");
            }
        }
    }

    #[test]
    fn a_newer_format_is_invalid_and_not_corrupt() {
        let mut newer = example().encode();
        newer[8] = 2;
        let body = newer.len() - 4;
        let sum = checksum(&newer[..body]).to_le_bytes();
        newer[body..].copy_from_slice(&sum);
        assert_eq!(Format::decode(&newer).unwrap_err().kind(), ErrorKind::Invalid);
        newer[body] ^= 1;
        assert_eq!(Format::decode(&newer).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

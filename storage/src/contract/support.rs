//! What the rules share.

use super::Make;
use crate::{Cursor, Delta, KeyRange, Order, ReadStore, StateStore, StoreFactory};
use onceflow_types::{
    CommitPoint, Epoch, Generation, Incarnation, Name, Nonce, Offset, Offsets, Partition, Result, TaskId, Timestamp,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// The subject of one rule: a way to make factories, and a directory of its own.
pub struct Contract<'m> {
    make: &'m Make<'m>,
    scratch: Scratch,
}

impl<'m> Contract<'m> {
    /// A subject in a new directory, which is removed with it.
    pub fn new(make: &'m Make<'m>) -> Self {
        Contract { make, scratch: Scratch::new() }
    }

    /// Where the stores lie, and where copies of it go: folders that may not exist yet.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A factory for a folder of the subject.
    pub fn factory(&self, name: &str) -> Box<dyn StoreFactory> {
        (self.make)(&self.path(name))
    }

    /// The job of all stores.
    pub fn job() -> Name {
        Name::job("contract").unwrap()
    }

    /// One of its tasks.
    pub fn task(queue: u32) -> TaskId {
        TaskId { subtopology: Name::new("subject").unwrap(), broker: "broker-a".into(), queue }
    }

    /// Opens the store of task 0.
    pub fn open(factory: &dyn StoreFactory) -> Result<Box<dyn StateStore>> {
        factory.open(&Self::job(), &Self::task(0))
    }
}

/// A directory under the system's temporary one, removed on drop.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates one. Unique among the processes and threads of the machine.
    pub fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("onceflow-storage-{}-{number}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind when it cannot be removed: a test that failed already says why.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A point for an epoch: always the same for the same epoch, different for others.
pub fn point(epoch: u64) -> CommitPoint {
    let offsets: Offsets = [(Partition::new("in", "broker-a", 0), Offset::new(epoch * 10))].into_iter().collect();
    CommitPoint {
        incarnation: Incarnation::new(7),
        generation: Generation::new(3),
        nonce: Nonce::new(9),
        epoch: Epoch::new(epoch),
        offsets,
        watermarks: BTreeMap::new(),
        clock: Timestamp::from_millis(1_700_000_000_000),
        channels: BTreeMap::new(),
        tails: Offsets::default(),
        published_through: Epoch::ZERO,
        commit_offset: Offset::new(epoch),
        commit_checksum: 1,
        unpublished: vec![],
        journal_next: Offset::new(epoch + 1),
    }
}

/// A delta of puts.
pub(super) fn puts<'e>(entries: impl IntoIterator<Item = (&'e [u8], &'e [u8])>) -> Delta {
    let mut delta = Delta::default();
    entries.into_iter().for_each(|(key, value)| delta.put(key, value));
    delta
}

/// All entries of a range, read by a scan.
///
/// # Errors
/// Those of the scan.
#[allow(clippy::type_complexity, reason = "a list of entries")]
pub fn entries<S: ReadStore + ?Sized>(store: &S, range: KeyRange<'_>, order: Order) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut cursor: Box<dyn Cursor + '_> = store.scan(range, order)?;
    let mut found = vec![];
    while let Some((key, value)) = cursor.next()? {
        found.push((key.to_vec(), value.to_vec()));
    }
    assert!(cursor.next()?.is_none(), "a cursor that has ended stays at its end");
    Ok(found)
}

const READINGS_MAX: usize = 100;

/// The files of a directory, in memory.
#[derive(PartialEq)]
pub(super) struct Tree(pub(super) Vec<TreeFile>);

#[derive(Clone, PartialEq)]
pub(super) struct TreeFile {
    /// Below the directory.
    pub(super) path: PathBuf,
    /// Without the zeros at the end.
    pub(super) bytes: Vec<u8>,
    pub(super) len: u64,
}

impl Tree {
    /// Reads a directory as it is at one moment: again, until two readings are equal. An engine may merge tables
    /// meanwhile, and files of two moments are no crash.
    pub(super) fn read(root: &Path) -> io::Result<Tree> {
        let mut last = Tree::read_once(root)?;
        for _ in 0..READINGS_MAX {
            let next = Tree::read_once(root)?;
            if next == last {
                return Ok(next);
            }
            last = next;
        }
        Err(io::Error::other(format!("{} does not come to rest", root.display())))
    }

    /// A file or folder that vanishes meanwhile is left out.
    fn read_once(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree(vec![]);
        tree.read_folder(root, Path::new(""))?;
        tree.0.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(tree)
    }

    fn read_folder(&mut self, root: &Path, below: &Path) -> io::Result<()> {
        for entry in fs::read_dir(root.join(below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            match self.read_entry(root, &entry, path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                read => read?,
            }
        }
        Ok(())
    }

    fn read_entry(&mut self, root: &Path, entry: &fs::DirEntry, path: PathBuf) -> io::Result<()> {
        if entry.file_type()?.is_dir() {
            return self.read_folder(root, &path);
        }
        let (bytes, len) = read_file(&entry.path())?;
        self.0.push(TreeFile { path, bytes, len });
        Ok(())
    }

    /// Writes the files below another directory.
    pub(super) fn write(&self, to: &Path) -> io::Result<()> {
        self.0.iter().try_for_each(|file| file.write(to))
    }
}

impl TreeFile {
    pub(super) fn write(&self, to: &Path) -> io::Result<()> {
        let target = to.join(&self.path);
        target.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&target, &self.bytes)?;
        fs::OpenOptions::new().write(true).open(&target)?.set_len(self.len)
    }
}

/// Reads a file without the zeros at its end: fjall's journals are 64 MiB, nearly all of it zeros.
fn read_file(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    const BLOCK: usize = 64 << 10;
    let mut file = fs::File::open(path)?;
    let (mut bytes, mut block, zeros) = (vec![], vec![0; BLOCK], vec![0; BLOCK]);
    let (mut len, mut used) = (0, 0);
    loop {
        let count = file.read(&mut block)?;
        let part = block.get(..count).unwrap_or_default();
        if count == 0 {
            bytes.truncate(used);
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(end);
            return Ok((bytes, len));
        }
        len += count as u64;
        // Blocks are compared as a whole, and kept only up to the last that is not zero.
        if Some(part) != zeros.get(..count) {
            bytes.resize(usize::try_from(len).unwrap() - count, 0);
            bytes.extend_from_slice(part);
            used = bytes.len();
        }
    }
}

/// Copies a directory as it is: what a crash at this moment would leave. The source may be in use.
///
/// # Errors
/// What the file system says, and when the directory never comes to rest.
pub fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    Tree::read(from)?.write(to)
}

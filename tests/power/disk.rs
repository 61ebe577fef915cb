//! A disk that loses power: what is surely there after the calls so far, and what may be.
//!
//! What is assumed, which is what POSIX promises and no more:
//! - A file's bytes and length are safe once an `fsync` or `fdatasync` of the file has succeeded. Of later changes any part
//!   may be there: none, all, the first ones with the last one torn, or any set of pages in any of the versions they had,
//!   one of them torn between two sectors.
//! - A name is safe once an `fsync` of its directory has succeeded, also when the file itself was synced. Of later changes
//!   of a directory the first ones may be there, and how many is drawn for each directory by itself.
//! - After an `fsync` that failed, nobody writes these pages again: they stay as they were on disk, or as they were to
//!   become, also when a later `fsync` succeeds (what Linux does), until they are written to again.

use crate::content::{Change, Content, PAGE, SECTOR};
use crate::dice::Dice;
use crate::recording::{Call, KEEP_SIZE, PUNCH_HOLE, What, ZERO_RANGE};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Folder(usize),
}

/// The state of a whole directory tree.
#[derive(Clone, Debug)]
pub struct Disk {
    files: Vec<File>,
    folders: Vec<Folder>,
    inodes: BTreeMap<u64, usize>,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// What the process sees.
    cache: Content,
    durable: Content,
    /// Since the last sync.
    changes: Vec<Change>,
    dirty: BTreeSet<u64>,
    /// Pages whose sync failed.
    lost: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default)]
struct Folder {
    cache: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    changes: Vec<NameChange>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(String, Node),
    Remove(String),
    Rename(String, String),
}

/// How much of what was not synced an image holds.
#[derive(Clone, Copy, Debug)]
pub enum Kept {
    Nothing,
    Everything,
    /// Everything of the files, and of the names what is drawn.
    Bytes,
    /// All names, and of the files what is drawn.
    Names,
    /// Drawn for each file and directory.
    Drawn,
}

impl Kept {
    pub fn draw(dice: &mut Dice) -> Kept {
        match dice.below(12) {
            0 | 1 => Kept::Nothing,
            2 => Kept::Everything,
            3 => Kept::Bytes,
            4..6 => Kept::Names,
            _ => Kept::Drawn,
        }
    }
}

impl Disk {
    /// What lies in a directory now, all of it safe.
    pub fn read(path: &Path) -> Disk {
        let mut disk = Disk { files: vec![], folders: vec![], inodes: BTreeMap::new() };
        disk.read_folder(path);
        disk
    }

    fn read_folder(&mut self, path: &Path) -> usize {
        let number = self.folders.len();
        self.folders.push(Folder::default());
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            let node = if found.is_dir() {
                Node::Folder(self.read_folder(&entry.path()))
            } else {
                let content = Content::read(&entry.path());
                let file = File { cache: content.clone(), durable: content, ..File::default() };
                Node::File(self.add_file(found.ino(), file))
            };
            self.folders[number].cache.insert(entry.file_name().into_string().unwrap(), node);
        }
        self.folders[number].durable = self.folders[number].cache.clone();
        number
    }

    fn add_file(&mut self, inode: u64, file: File) -> usize {
        self.files.push(file);
        self.inodes.insert(inode, self.files.len() - 1);
        self.files.len() - 1
    }

    /// The directory of a path, and the name in it.
    fn place(&self, path: &str) -> (usize, String) {
        let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
        let last = names.pop().expect("a path in the directory");
        let folder = names.iter().fold(0, |folder, name| match self.folders[folder].cache.get(*name) {
            Some(Node::Folder(next)) => *next,
            other => panic!("no directory {name} in {path}: {other:?}"),
        });
        (folder, last.to_owned())
    }

    fn folder(&self, path: &str) -> usize {
        if path.split('/').all(|name| name.is_empty() || name == ".") {
            return 0;
        }
        let (folder, name) = self.place(path);
        match self.folders[folder].cache.get(&name) {
            Some(Node::Folder(folder)) => *folder,
            other => panic!("no directory {path}: {other:?}"),
        }
    }

    fn node(&self, path: &str) -> Node {
        let (folder, name) = self.place(path);
        *self.folders[folder].cache.get(&name).unwrap_or_else(|| panic!("no {path}"))
    }

    fn file(&mut self, inode: u64) -> &mut File {
        let number = self.inodes.get(&inode).copied().expect("a file that was seen before");
        &mut self.files[number]
    }

    /// Carries a call out.
    pub fn apply(&mut self, call: &Call) {
        if call.result < 0 {
            // A directory that could not be synced keeps its changes waiting.
            if let What::Sync { inode, directory: false } = &call.what {
                self.file(*inode).sync_failed();
            }
            return;
        }
        match &call.what {
            What::Open { inode, creates: true, .. } => {
                let file = self.add_file(*inode, File::default());
                self.set_name(&call.path, Node::File(file));
            }
            What::Open { inode, cuts, .. } => {
                if *cuts {
                    self.file(*inode).change(Change::Length(0));
                }
            }
            What::Write { inode, offset, data } => {
                self.file(*inode).change(Change::Write { offset: *offset, data: data.clone() });
            }
            What::Sync { directory: true, .. } => {
                let folder = self.folder(&call.path);
                self.folders[folder].sync();
            }
            What::Sync { inode, .. } => self.file(*inode).sync(),
            What::Length { inode, length } => self.file(*inode).change(Change::Length(*length)),
            What::Allocate { inode, mode, offset, length } => self.file(*inode).allocate(*mode, *offset, *length),
            What::Rename { to } => self.rename(&call.path, to),
            What::Link { to } => {
                let node = self.node(&call.path);
                self.set_name(to, node);
            }
            What::Remove => {
                let (folder, name) = self.place(&call.path);
                self.folders[folder].change(NameChange::Remove(name));
            }
            What::MakeDirectory => {
                self.folders.push(Folder::default());
                self.set_name(&call.path, Node::Folder(self.folders.len() - 1));
            }
        }
    }

    fn set_name(&mut self, path: &str, node: Node) {
        let (folder, name) = self.place(path);
        self.folders[folder].change(NameChange::Set(name, node));
    }

    fn rename(&mut self, from: &str, to: &str) {
        let ((folder, from), (other, to)) = (self.place(from), self.place(to));
        assert_eq!(folder, other, "a rename across directories is not modelled: {from} {to}");
        self.folders[folder].change(NameChange::Rename(from, to));
    }

    /// Writes what may be there after power was lost now.
    pub fn store(&self, path: &Path, kept: Kept, dice: &mut Dice) {
        self.store_folder(0, path, kept, dice);
    }

    fn store_folder(&self, folder: usize, path: &Path, kept: Kept, dice: &mut Dice) {
        fs::create_dir_all(path).unwrap();
        for (name, node) in self.folders[folder].image(kept, dice) {
            match node {
                Node::File(file) => self.files[file].image(kept, dice).store(&path.join(name)),
                Node::Folder(folder) => self.store_folder(folder, &path.join(name), kept, dice),
            }
        }
    }
}

impl Folder {
    fn change(&mut self, change: NameChange) {
        apply_name(&mut self.cache, &change);
        self.changes.push(change);
    }

    fn sync(&mut self) {
        self.durable = self.cache.clone();
        self.changes.clear();
    }

    fn image(&self, kept: Kept, dice: &mut Dice) -> BTreeMap<String, Node> {
        let count = match kept {
            Kept::Nothing => 0,
            Kept::Everything | Kept::Names => self.changes.len(),
            Kept::Bytes | Kept::Drawn => dice.up_to(self.changes.len()),
        };
        let mut names = self.durable.clone();
        self.changes[..count].iter().for_each(|change| apply_name(&mut names, change));
        names
    }
}

fn apply_name(names: &mut BTreeMap<String, Node>, change: &NameChange) {
    match change {
        NameChange::Set(name, node) => {
            names.insert(name.clone(), *node);
        }
        NameChange::Remove(name) => {
            names.remove(name);
        }
        NameChange::Rename(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
        }
    }
}

impl File {
    fn change(&mut self, change: Change) {
        let range = change.pages(self.cache.length());
        // Where zeros come to nothing, nothing changes: journals are laid out far beyond what is in them.
        let pages: Vec<u64> = match &change {
            Change::Write { .. } => range.collect(),
            _ if range.is_empty() => vec![],
            _ => self.cache.held(range).collect(),
        };
        for page in pages {
            self.dirty.insert(page);
            self.lost.remove(&page);
        }
        self.cache.apply(&change);
        self.changes.push(change);
    }

    fn allocate(&mut self, mode: u8, offset: u64, length: u64) {
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            self.change(Change::Zero { offset, length });
        }
        if mode & KEEP_SIZE == 0 && offset + length > self.cache.length() {
            self.change(Change::Length(offset + length));
        }
    }

    fn sync(&mut self) {
        for page in std::mem::take(&mut self.dirty) {
            self.durable.copy_page(&self.cache, page);
        }
        self.durable.cut(self.cache.length());
        self.changes.clear();
    }

    fn sync_failed(&mut self) {
        self.lost.append(&mut self.dirty);
        self.changes.clear();
    }

    fn image(&self, kept: Kept, dice: &mut Dice) -> Content {
        let mut content = match (kept, dice.below(4)) {
            (Kept::Nothing, _) | (Kept::Drawn, 0) => self.durable.clone(),
            (Kept::Everything | Kept::Bytes, _) | (Kept::Drawn, 1) => self.first_changes(self.changes.len()),
            (Kept::Names | Kept::Drawn, 2) => self.torn(dice),
            (Kept::Names | Kept::Drawn, _) => self.some_pages(dice),
        };
        for page in self.lost.iter().copied() {
            let there = match kept {
                Kept::Nothing => false,
                Kept::Everything | Kept::Bytes => true,
                Kept::Names | Kept::Drawn => dice.below(2) == 0,
            };
            if there {
                content.copy_page(&self.cache, page);
                // The length comes with the page, or the page would not be seen.
                let end = ((page + 1) * PAGE).min(self.cache.length());
                content.set_length(content.length().max(end));
            }
        }
        content
    }

    fn first_changes(&self, count: usize) -> Content {
        let mut content = self.durable.clone();
        self.changes[..count].iter().for_each(|change| content.apply(change));
        content
    }

    /// The first changes, and of the next one a part.
    fn torn(&self, dice: &mut Dice) -> Content {
        let count = dice.up_to(self.changes.len());
        let mut content = self.first_changes(count);
        if let Some(Change::Write { offset, data }) = self.changes.get(count)
            && !data.is_empty()
        {
            let part = dice.up_to(data.len() - 1);
            content.apply(&Change::Write { offset: *offset, data: data[..part].into() });
        }
        content
    }

    /// Each page in one of the versions that it had, one page made of two versions, and one of the lengths.
    fn some_pages(&self, dice: &mut Dice) -> Content {
        let mut version: Vec<usize> = self.dirty.iter().map(|_| dice.up_to(self.changes.len())).collect();
        // Pages that nobody wrote back are as likely as others.
        version.iter_mut().for_each(|version| *version *= usize::from(dice.below(3) > 0));
        let torn = (!version.is_empty()).then(|| dice.up_to(version.len() - 1));
        let (torn_version, length_version) = (dice.up_to(self.changes.len()), dice.up_to(self.changes.len()));
        let mut content = self.durable.clone();
        let mut seen = self.durable.clone();
        let mut length = seen.length();
        let mut mixed = None;
        for count in 0..=self.changes.len() {
            if let Some(change) = count.checked_sub(1).map(|last| &self.changes[last]) {
                seen.apply(change);
            }
            for (page, _) in self.dirty.iter().zip(&version).filter(|(_, version)| **version == count) {
                content.copy_page(&seen, *page);
            }
            if let Some(torn) = torn.filter(|_| torn_version == count) {
                mixed = self.dirty.iter().nth(torn).map(|page| (*page, seen.page(*page)));
            }
            if length_version == count {
                length = seen.length();
            }
        }
        if let Some((page, other)) = mixed {
            let border = dice.up_to(PAGE as usize / SECTOR) * SECTOR;
            let whole = content.page(page);
            content.set_page(page, [&whole[..border], &other[border..]].concat().into());
        }
        content.cut(length);
        content
    }
}

//! What a process did to its files: the calls that `shim.c` wrote down, in their order.

use std::fs;
use std::path::Path;
use std::rc::Rc;

/// One call that changes the disk, or was to. Paths count from the watched directory on.
#[derive(Clone, Debug)]
pub struct Call {
    pub path: String,
    /// The call's own result: below zero it failed, and changed nothing.
    pub result: i64,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    /// Opened: created when it was missing, cut to nothing when it was there.
    Open {
        inode: u64,
        creates: bool,
        cuts: bool,
    },
    Write {
        inode: u64,
        offset: u64,
        data: Rc<[u8]>,
    },
    /// `fsync` or `fdatasync`.
    Sync {
        inode: u64,
        directory: bool,
    },
    Length {
        inode: u64,
        length: u64,
    },
    /// `fallocate`.
    Allocate {
        inode: u64,
        mode: u8,
        offset: u64,
        length: u64,
    },
    Rename {
        to: String,
    },
    Link {
        to: String,
    },
    Remove,
    MakeDirectory,
}

/// `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE`, `FALLOC_FL_ZERO_RANGE`.
pub const KEEP_SIZE: u8 = 1;
pub const PUNCH_HOLE: u8 = 2;
pub const ZERO_RANGE: u8 = 16;

/// The file by which the process says what it has done.
pub const MARKS: &str = "/marks";

impl Call {
    /// The marks in this call, when it is one.
    pub fn marks(&self) -> Option<&[u8]> {
        match &self.what {
            What::Write { data, .. } if self.path == MARKS => Some(data),
            _ => None,
        }
    }

    /// The letter by which the shim counts this call, or `None` for one that it never makes fail.
    pub fn class(&self) -> Option<char> {
        if self.path == MARKS {
            return None;
        }
        Some(match self.what {
            What::Open { .. } => 'o',
            What::Write { .. } => 'w',
            What::Sync { .. } => 's',
            What::Length { .. } | What::Allocate { .. } => 't',
            What::Rename { .. } | What::Link { .. } => 'r',
            What::Remove => 'u',
            What::MakeDirectory => 'm',
        })
    }
}

/// Reads what the shim wrote. Panics at a change that the shim could not see in full: a recording with a hole proves
/// nothing.
///
/// ```text
/// operation u8, flag u8, path u16, second path u16, 2 bytes 0     lengths in bytes
/// result i64, inode u64, offset u64, length u64, data u64         little-endian
/// path, second path, data
/// ```
pub fn read(log: &Path) -> Vec<Call> {
    let bytes = fs::read(log).unwrap();
    let mut rest = &bytes[..];
    let mut calls = vec![];
    while !rest.is_empty() {
        let number = |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().unwrap());
        let short = |at: usize| usize::from(u16::from_le_bytes([rest[at], rest[at + 1]]));
        let (operation, flag, path, second) = (rest[0], rest[1], short(2), short(4));
        let (result, inode, offset, length) = (number(8).cast_signed(), number(16), number(24), number(32));
        let data = usize::try_from(number(40)).unwrap();
        let (head, tail) = rest[HEAD..].split_at(path + second);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (path, to) = (text(&head[..path]), text(&head[path..]));
        let what = match operation {
            b'o' => What::Open { inode, creates: flag & 1 != 0, cuts: flag & 2 != 0 },
            b'w' => What::Write { inode, offset, data: tail[..data].into() },
            b's' => What::Sync { inode, directory: flag != 0 },
            b't' => What::Length { inode, length },
            b'f' => What::Allocate { inode, mode: flag, offset, length },
            b'r' => What::Rename { to },
            b'l' => What::Link { to },
            b'u' => What::Remove,
            b'm' => What::MakeDirectory,
            other => panic!("a change that cannot be followed: {} of {path}, call {result}", char::from(other)),
        };
        calls.push(Call { path, result, what });
        rest = &tail[data..];
    }
    calls
}

const HEAD: usize = 48;

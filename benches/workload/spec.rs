//! The common work's input and checksum (`docs/benchmarks.md`, section "The work").

use onceflow::codec::Decode;
use onceflow::types::{Error, Result};

pub type Key = [u8; 16];

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// The event time of record 0, in milliseconds.
const TIME_START: i64 = 1_700_000_000_000;
/// Bytes of an input record.
pub const INPUT_BYTES: usize = 100;
/// The queues of the input topic; a key's records are all in one.
pub const QUEUES: u32 = 4;

/// SplitMix64's finaliser.
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Maps the high half of a hash onto `0..n`.
fn scale(hash: u64, n: u64) -> u64 {
    ((hash >> 32) * n) >> 32
}

/// How the keys come.
#[derive(Clone, Copy, Debug)]
pub enum Arrival {
    /// Drawn evenly.
    Uniform,
    /// One after the other, for state that has each of them.
    EachKeyOnce,
}

/// Records that are due one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// When record 0 is due, in microseconds since 1970.
    pub begin_us: i64,
    /// Records a second.
    pub rate: u64,
}

impl Pace {
    /// When a record is due, in microseconds since 1970.
    pub fn due_us(self, record: u64) -> i64 {
        self.begin_us + (record * 1_000_000 / self.rate) as i64
    }
}

/// The deterministic input.
#[derive(Clone, Copy, Debug)]
pub struct Generator {
    pub seed: u64,
    pub keys: u64,
    pub arrival: Arrival,
    /// With it event time is wall-clock time, and a record's ingest time is when it is due.
    pub pace: Option<Pace>,
}

impl Generator {
    fn draw(self, record: u64, number: u64) -> u64 {
        mix(self.seed.wrapping_add((record * 8 + number + 1).wrapping_mul(GOLDEN)))
    }

    pub fn key(self, record: u64) -> u64 {
        match self.arrival {
            Arrival::Uniform => scale(self.draw(record, 0), self.keys),
            Arrival::EachKeyOnce => record % self.keys,
        }
    }

    pub fn amount(self, record: u64) -> u64 {
        1 + scale(self.draw(record, 1), 100_000)
    }

    /// Event time in milliseconds.
    pub fn time(self, record: u64) -> i64 {
        let hash = self.draw(record, 2);
        let late = if scale(hash, 100) == 0 { 1 + (((hash & 0xFFFF_FFFF) * 2_000) >> 32) } else { 0 };
        self.time_in_order(record) - late as i64
    }

    /// Event time of a record that is not late.
    fn time_in_order(self, record: u64) -> i64 {
        match self.pace {
            None => TIME_START + (record / 10) as i64,
            Some(pace) => pace.due_us(record) / 1_000,
        }
    }

    /// Record `record`, 100 bytes, little-endian: seq, event time, amount, ingest time, key, filler.
    pub fn record(self, record: u64) -> [u8; INPUT_BYTES] {
        let mut bytes = input_bytes(record as i64, self.time(record), self.amount(record) as i64, self.key(record));
        let ingest = self.pace.map_or(0, |pace| pace.due_us(record));
        bytes[24..32].copy_from_slice(&ingest.to_le_bytes());
        let filler = self.draw(record, 3);
        for (place, byte) in bytes[48..].iter_mut().enumerate() {
            *byte = b'a' + ((filler >> place) & 15) as u8;
        }
        bytes
    }

    /// The record behind `records` others that closes all their windows, with key `key`; no window of its own is to close.
    pub fn sentinel(self, records: u64, key: u64) -> [u8; INPUT_BYTES] {
        input_bytes(-1, self.time_in_order(records) + 60_000, 0, key)
    }
}

/// Without ingest time and filler.
fn input_bytes(seq: i64, time: i64, amount: i64, key: u64) -> [u8; INPUT_BYTES] {
    let mut bytes = [0; INPUT_BYTES];
    for (place, number) in bytes.chunks_exact_mut(8).zip([seq, time, amount]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes[32..48].copy_from_slice(&key_bytes(key));
    bytes
}

/// `c` and 15 decimal digits.
pub fn key_bytes(mut key: u64) -> Key {
    let mut bytes = [b'c'; 16];
    for byte in bytes[1..].iter_mut().rev() {
        *byte = b'0' + (key % 10) as u8;
        key /= 10;
    }
    bytes
}

fn key_number(bytes: &[u8]) -> u64 {
    bytes[1..].iter().fold(0, |key, byte| key * 10 + u64::from(byte - b'0'))
}

/// An input record, decoded.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    pub seq: i64,
    /// Event time in milliseconds.
    pub time: i64,
    pub amount: i64,
    pub ingest: i64,
    pub key: Key,
}

/// Reads input records; allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct InputCodec;

pub fn number_at(bytes: &[u8], place: usize) -> i64 {
    i64::from_le_bytes(bytes[place..place + 8].try_into().expect("eight bytes"))
}

impl Decode<Input> for InputCodec {
    fn decode(&self, bytes: &[u8]) -> Result<Input> {
        if bytes.len() != INPUT_BYTES {
            return Err(Error::record(format!("input record has another length: bytes={}", bytes.len())));
        }
        Ok(Input {
            seq: number_at(bytes, 0),
            time: number_at(bytes, 8),
            amount: number_at(bytes, 16),
            ingest: number_at(bytes, 24),
            key: bytes[32..48].try_into().expect("sixteen bytes"),
        })
    }
}

/// The checksum over outputs, in any order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Check {
    pub count: u64,
    pub sum: u64,
}

impl Check {
    pub fn add(&mut self, a: i64, c: i64, d: i64, key: u64) {
        let mut hash = mix((a as u64).wrapping_add(GOLDEN));
        hash = mix(hash ^ c as u64);
        hash = mix(hash ^ d as u64);
        self.count += 1;
        self.sum = self.sum.wrapping_add(mix(hash ^ key));
    }

    /// Adds an output as it was written; one of another length makes the check fail.
    pub fn add_output(&mut self, body: &[u8]) {
        if body.len() == 48 {
            self.add(number_at(body, 0), number_at(body, 16), number_at(body, 24), key_number(&body[32..48]));
        }
    }
}

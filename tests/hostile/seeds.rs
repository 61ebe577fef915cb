//! Real encodings of everything that the fuzz targets read.

use onceflow::log::{MessageBatch, Properties};
use onceflow::storage::Delta;
use onceflow::txn::{
    Claim, Commit, CommitBody, DeltaPart, EpochBody, Frame, IDENTITY_PROPERTY, Identity, JournalRecord, ListedHalf,
    OutboxBatch, Owner, Release, Snapshot, SnapshotLocation,
};
use onceflow::types::wire::{Encode, checksum};
use onceflow::types::{
    Channel, CommitPoint, Epoch, Generation, HalfHandle, Incarnation, Name, Nonce, Offset, Offsets, Partition,
    Sequence, TaskId, Timestamp,
};
use std::collections::BTreeMap;

fn target() -> Partition {
    Partition::new("alerts", "broker-a", 2)
}

fn task() -> TaskId {
    TaskId { subtopology: Name::new("score").expect("a name"), broker: "broker-a".into(), queue: 3 }
}

fn channel() -> Channel {
    Channel { sink: Name::new("alerts").expect("a name"), target: target() }
}

fn identity(source: Option<(Partition, Offset)>) -> Identity {
    Identity {
        job: Name::job("fraud").expect("a name"),
        incarnation: Incarnation::new(9),
        task: task(),
        generation: Generation::new(12),
        epoch: Epoch::new(3),
        sink: Name::new("alerts").expect("a name"),
        sequence: Sequence::new(40),
        floor: Sequence::new(38),
        source,
    }
}

fn body() -> EpochBody {
    let handle = HalfHandle {
        target: target(),
        commit_log_offset: 1 << 40,
        half_queue_offset: 7,
        unique_key: "7F0000010000".into(),
    };
    let outbox = OutboxBatch { channel: channel(), first: Sequence::new(41), count: 2, messages: vec![1; 40] };
    let half = ListedHalf { channel: channel(), sequence: Sequence::new(40), handle };
    EpochBody { changes: vec![7; 30], halves: vec![half], outbox: vec![outbox] }
}

fn records() -> Vec<JournalRecord> {
    let (incarnation, generation, epoch) = (Incarnation::new(9), Generation::new(12), Epoch::new(3));
    let mut offsets = Offsets::default();
    offsets.set(&Partition::new("payments", "broker-a", 3), Offset::new(6));
    let commit = Commit {
        incarnation,
        generation,
        epoch,
        offsets,
        watermarks: BTreeMap::new(),
        clock: Timestamp::from_millis(1_700_000_000_000),
        channels: [(channel(), Sequence::new(41))].into(),
        tails: Offsets::default(),
        published_through: Epoch::new(2),
        body: CommitBody::Inline(body().encode().expect("a body")),
    };
    let location = SnapshotLocation { partition: target(), first: Offset::new(4), chunks: 2, checksum: 5 };
    vec![
        JournalRecord::Claim(Claim {
            incarnation,
            nonce: Nonce::new(9),
            replaces: Some(Generation::new(3)),
            owner: Owner { host: "host".into(), directory: "/state".into() },
            topology_hash: 1,
        }),
        JournalRecord::Delta(DeltaPart { incarnation, generation, epoch, part: 0, parts: 2, bytes: vec![5; 20] }),
        JournalRecord::Commit(Box::new(commit.clone())),
        JournalRecord::Commit(Box::new(Commit { body: CommitBody::Parts { parts: 2, checksum: 77 }, ..commit })),
        JournalRecord::Snapshot(Box::new(Snapshot {
            incarnation,
            generation,
            epoch,
            through: Offset::new(20),
            commit_offset: Offset::new(19),
            commit_checksum: 3,
            location,
        })),
        JournalRecord::Release(Release { incarnation, generation, epoch }),
    ]
}

fn batch() -> MessageBatch {
    let mut batch = MessageBatch::default();
    batch.push(b"KEYS\x01a\x02", &[5; 100]).expect("a message");
    batch.push(b"", b"").expect("a message");
    batch
}

fn frame(compress: bool) -> Vec<u8> {
    let mut frame = vec![];
    let identity = identity(Some((target(), Offset::new(8))));
    Frame::encode_into(&mut frame, &identity, Timestamp::from_millis(1), 2, batch().as_bytes(), compress);
    frame
}

fn delta() -> Vec<u8> {
    let mut delta = Delta::default();
    delta.put(b"key", b"value");
    delta.delete(b"other");
    let mut bytes = vec![];
    delta.encode(&mut bytes);
    bytes
}

fn point() -> CommitPoint {
    let mut offsets = Offsets::default();
    offsets.set(&Partition::new("payments", "broker-a", 3), Offset::new(6));
    CommitPoint {
        incarnation: Incarnation::new(9),
        generation: Generation::new(12),
        nonce: Nonce::new(9),
        epoch: Epoch::new(3),
        offsets,
        watermarks: BTreeMap::new(),
        clock: Timestamp::from_millis(5),
        channels: [(channel(), Sequence::new(41))].into(),
        tails: Offsets::default(),
        published_through: Epoch::new(3),
        commit_offset: Offset::new(19),
        commit_checksum: 77,
        unpublished: vec![],
        journal_next: Offset::new(20),
    }
}

fn properties() -> Vec<u8> {
    let mut properties = Properties::default();
    properties.push("KEYS", "card-7").expect("a property");
    properties.push("UNIQ_KEY", "7F0000010000").expect("a property");
    properties.push(IDENTITY_PROPERTY, &identity(None).to_property()).expect("a property");
    properties.as_bytes().to_vec()
}

/// A frame as a broker sends it.
fn reply(header: &str, body: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u32::try_from(bytes).expect("small").to_be_bytes();
    [&length(4 + header.len() + body.len())[..], &length(header.len()), header.as_bytes(), body].concat()
}

/// A message as a broker stores it; drawn in `log/src/remoting/stored.rs`.
fn stored(offset: u64, sys_flag: u32, body: &[u8], properties: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(0xDAA3_20A7_u32.to_be_bytes());
    bytes.extend((crc32(body) & 0x7fff_ffff).to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(offset.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(sys_flag.to_be_bytes());
    bytes.extend([0; 8 + 8 + 8 + 8 + 4 + 8]);
    bytes.extend(u32::try_from(body.len()).expect("small").to_be_bytes());
    bytes.extend(body);
    bytes.extend(b"\x05topic");
    bytes.extend(u16::try_from(properties.len()).expect("small").to_be_bytes());
    bytes.extend(properties);
    let total = u32::try_from(bytes.len()).expect("small");
    bytes[..4].copy_from_slice(&total.to_be_bytes());
    bytes
}

/// CRC-32 as zlib has it, bit by bit: the bodies are small.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// "to be or not to be or not to be" as producers compress it.
const PACKED: [(u8, &[u8]); 4] = [
    (0, b"\x78\x9c\x2b\xc9\x57\x48\x4a\x55\xc8\x2f\x52\xc8\xcb\x2f\x51\x28\xc1\xe0\x00\x00\xa8\x62\x0a\x83"),
    (2, b"\x28\xb5\x2f\xfd\x20\x1f\xf9\x00\x00to be or not to be or not to be"),
    (1, b"\x1f\x00\x00\x00\xf0\x10to be or not to be or not to be"),
    (1, b"\x04\x22\x4d\x18\x60\x40\x82\x1f\x00\x00\x80to be or not to be or not to be\x00\x00\x00\x00"),
];

fn pulls() -> [Vec<u8>; 2] {
    let inner = stored(1, 0x80, batch().as_bytes(), b"INNER_NUM\x012\x02");
    [
        [vec![8 << 3], stored(0, 0, b"one", b"KEYS\x01a\x02"), inner].concat(),
        [vec![8 << 3], stored(0, 0x201, PACKED[1].1, b"UNIQ_KEY\x01K\x02")].concat(),
    ]
}

fn chunk() -> Vec<u8> {
    let mut bytes = b"OFSN\x01\x05score\x08broker-a\x03".to_vec();
    bytes.put_u128(7);
    bytes.put_count(300);
    bytes.put_u8(1);
    bytes.put_bytes(b"piece");
    let sum = checksum(&bytes);
    bytes.put_u32(sum);
    bytes
}

fn point_bytes() -> Vec<u8> {
    let mut bytes = vec![];
    point().encode(&mut bytes);
    bytes
}

fn header() -> Vec<u8> {
    let mut bytes = vec![];
    bytes.put_bytes(&point_bytes());
    bytes.put_bytes(&records()[0].encode());
    bytes
}

/// Targets and encodings.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<(&'static str, Vec<u8>)> = vec![];
    let mut add = |name, encodings: Vec<Vec<u8>>| all.extend(encodings.into_iter().map(|bytes| (name, bytes)));
    add("journal_record", records().iter().map(JournalRecord::encode).collect());
    add("epoch_body", vec![body().encode().expect("a body"), EpochBody::default().encode().expect("a body")]);
    add("frame", vec![frame(true), frame(false)]);
    let identities = [None, Some((target(), Offset::new(8)))].map(|source| identity(source).to_property().into_bytes());
    add("identity", identities.into());
    add("message_batch", vec![batch().into_bytes()]);
    add("delta", vec![delta()]);
    add("commit_point", vec![point_bytes()]);
    add("properties", vec![properties(), b"KEYS\na\x01b\nTAGS\nt".to_vec()]);
    add("names", vec![b"fraud\nscore\nbroker-a".to_vec(), b"..\n../etc\n/etc/../passwd".to_vec()]);
    add("check_back", vec![properties()]);
    let claims_commits_and_more = (0_u8..=255).map(|byte| byte.wrapping_mul(37)).collect::<Vec<_>>();
    add("fold_operations", vec![vec![0; 40], claims_commits_and_more.clone()]);
    add("coordinator_operations", vec![vec![0, 0, 15, 15, 15, 0, 0, 0, 0, 0, 0, 15], claims_commits_and_more.clone()]);
    add("dedup_operations", vec![claims_commits_and_more]);
    let fields = r#"{"code":0,"opaque":3,"flag":1,"remark":"","extFields":{"queueOffset":"9","msgId":"7F00"}}"#;
    add("avro", avro());
    add("remoting_frame", vec![reply(fields, b"body"), [reply(fields, b""), reply(fields, b"")].concat()]);
    add("pull_body", pulls().into());
    add("capped_inflate", PACKED.map(|(how, body)| [&[how], body].concat()).into());
    add("snapshot_chunk", vec![chunk()]);
    add("snapshot_header", vec![header()]);
    all
}

/// Bodies of the first schema and of the second.
fn avro() -> Vec<Vec<u8>> {
    let first = b"\x04ab\x05\x06\x00\x02\x02k\x02\x08\x00\x04\x02\x01".to_vec();
    let second = b"\x05\x02\x04ab\x02\x02k\x02\x08\x00\x02\x04\x01\x00\x00\x00".to_vec();
    vec![first, second]
}

/// Each encoding is what it says.
pub(crate) fn check() {
    assert!(records().iter().all(|record| onceflow::txn::decode(&record.encode()).is_ok()));
    assert_eq!(EpochBody::decode(&body().encode().expect("a body")).expect("decodes"), body());
    assert!([true, false].iter().all(|compress| Frame::decode(&frame(*compress), 1 << 20).is_ok()));
    assert!(Identity::from_property(identity(None).to_property().as_bytes()).is_ok());
    assert!(MessageBatch::from_bytes(batch().into_bytes()).is_ok());
    assert!(Delta::decode(&delta()).is_ok());
    assert_eq!(CommitPoint::decode(&point_bytes()).expect("decodes"), point());
    #[cfg(feature = "avro")]
    assert!(avro().iter().all(|body| super::targets::avro_readers(body) == 1));
    #[cfg(feature = "fuzzing")]
    {
        let (seen, rest) = onceflow_log::fuzzing::replies(&all_of("remoting_frame")[1], 1 << 20);
        assert!(seen.len() == 2 && rest.is_ok());
        for (pull, records) in pulls().iter().zip([3, 1]) {
            let (read, whole) =
                onceflow_log::fuzzing::pulled(&pull[1..], Offset::ZERO, 8, 1 << 16).expect("a good pull");
            assert!(whole && read.len() == records && read.iter().all(|record| record.body().is_ok()));
        }
        for (how, body) in PACKED {
            let mut to = vec![];
            onceflow_log::fuzzing::inflated(i32::from(how) << 8, body, &mut to).expect("can be inflated");
            assert_eq!(to, b"to be or not to be or not to be");
        }
        assert!(onceflow::fuzzing::chunk_again(&chunk()).is_some());
        assert!(onceflow::fuzzing::header_again(&header()).is_some());
    }
}

#[cfg(feature = "fuzzing")]
fn all_of(name: &str) -> Vec<Vec<u8>> {
    all().into_iter().filter(|(known, _)| *known == name).map(|(_, bytes)| bytes).collect()
}

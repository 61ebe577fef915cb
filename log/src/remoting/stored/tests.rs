use super::*;
use crate::{MessageBatch, RecordRef};
use onceflow_types::ErrorKind;
use proptest::prelude::*;

/// A message as a broker stores it, with every field open to lies.
#[derive(Clone, Debug)]
struct Message {
    magic: u32,
    crc: Option<u32>,
    queue: u32,
    flag: i32,
    offset: u64,
    sys_flag: i32,
    body: Vec<u8>,
    topic: Vec<u8>,
    properties: Vec<u8>,
}

impl Message {
    fn new(offset: u64, body: &[u8]) -> Self {
        let (topic, properties) = (b"topic".to_vec(), b"KEYS\x01k\x02".to_vec());
        Message {
            magic: MAGIC_1,
            crc: None,
            queue: 3,
            flag: 0,
            offset,
            sys_flag: 0,
            body: body.to_vec(),
            topic,
            properties,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend(self.magic.to_be_bytes());
        bytes.extend(self.crc.unwrap_or_else(|| crc(&self.body)).to_be_bytes());
        bytes.extend(self.queue.to_be_bytes());
        bytes.extend(self.flag.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(777_u64.to_be_bytes());
        bytes.extend(self.sys_flag.to_be_bytes());
        bytes.extend(1_000_i64.to_be_bytes());
        bytes.resize(bytes.len() + host_bytes(self.sys_flag & FLAG_BORN_HOST_V6), 9);
        bytes.extend(2_000_i64.to_be_bytes());
        bytes.resize(bytes.len() + host_bytes(self.sys_flag & FLAG_STORE_HOST_V6), 9);
        bytes.extend([0; 12]);
        bytes.extend(u32::try_from(self.body.len()).unwrap().to_be_bytes());
        bytes.extend(&self.body);
        if self.magic == MAGIC_2 {
            bytes.extend(u16::try_from(self.topic.len()).unwrap().to_be_bytes());
        } else {
            bytes.push(u8::try_from(self.topic.len()).unwrap());
        }
        bytes.extend(&self.topic);
        bytes.extend(u16::try_from(self.properties.len()).unwrap().to_be_bytes());
        bytes.extend(&self.properties);
        let total = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&total.to_be_bytes());
        bytes
    }
}

fn queue() -> Partition {
    Partition::new("topic", "broker", 3)
}

fn bounds(from: u64) -> Bounds {
    Bounds { from: Offset::new(from), records_max: 1_000, bytes_max: 1 << 30 }
}

fn bytes(messages: &[Message]) -> Bytes {
    messages.iter().flat_map(Message::bytes).collect::<Vec<_>>().into()
}

fn decoded(messages: &[Message], from: u64) -> Result<(RecordBatch, bool)> {
    decode(&queue(), bytes(messages), bounds(from))
}

fn bodies(records: &RecordBatch) -> Vec<Result<&[u8], &'static str>> {
    records.iter().map(|record| record.body()).collect()
}

#[test]
fn records_come_back_without_a_copy() {
    let messages = [Message::new(5, b"five"), Message { magic: MAGIC_2, ..Message::new(6, b"") }];
    let raw = bytes(&messages);
    let (records, whole) = decode(&queue(), raw.clone(), bounds(5)).unwrap();
    assert!(whole);
    assert_eq!(records.iter().map(|record| record.offset().get()).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(bodies(&records), [Ok(b"five".as_slice()), Ok(b"")]);
    let first = records.iter().next().unwrap();
    assert_eq!((first.born().as_millis(), first.stored().as_millis()), (1_000, 2_000));
    assert_eq!(first.property("KEYS"), Some(b"k".as_slice()));
    assert!(raw.as_ptr_range().contains(&first.body().unwrap().as_ptr()));
}

#[test]
fn hosts_of_ipv6_are_stepped_over() {
    for sys_flag in [FLAG_BORN_HOST_V6, FLAG_STORE_HOST_V6, FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6] {
        let (records, whole) = decoded(&[Message { sys_flag, ..Message::new(0, b"body") }], 0).unwrap();
        assert!(whole);
        assert_eq!(bodies(&records), [Ok(b"body".as_slice())]);
    }
}

#[test]
fn a_hole_or_a_wrong_start_is_data_loss() {
    let five = Message::new(5, b"a");
    for (messages, from) in [
        (vec![five.clone(), Message::new(7, b"b")], 5),
        (vec![five.clone(), five.clone()], 5),
        (vec![five.clone()], 4),
        (vec![five.clone()], 6),
    ] {
        let error = decoded(&messages, from).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DataLoss, "{error:?}");
    }
}

#[test]
fn a_damaged_body_keeps_its_place() {
    let damaged = Message { crc: Some(1), ..Message::new(1, b"b") };
    let cut = Message { sys_flag: FLAG_COMPRESSED, ..Message::new(2, b"no zlib") };
    let (records, whole) = decoded(&[Message::new(0, b"a"), damaged, cut, Message::new(3, b"d")], 0).unwrap();
    assert!(whole);
    let bodies = bodies(&records);
    assert_eq!((bodies.len(), bodies[0], bodies[3]), (4, Ok(b"a".as_slice()), Ok(b"d".as_slice())));
    assert!(bodies[1].is_err() && bodies[2].is_err());
}

#[test]
fn compressed_bodies_are_inflated_each_into_its_place() {
    let packed = |offset, body: &[u8]| Message {
        sys_flag: FLAG_COMPRESSED | 0x2 << 8,
        ..Message::new(offset, &zstd::encode_all(body, 1).unwrap())
    };
    let (records, _) = decoded(&[packed(0, b"one"), Message::new(1, b"two"), packed(2, b"three")], 0).unwrap();
    assert_eq!(bodies(&records), [Ok(b"one".as_slice()), Ok(b"two"), Ok(b"three")]);
}

#[test]
fn a_read_ends_before_it_inflates_without_bound() {
    let bomb = zstd::encode_all(&vec![0; INFLATED_BYTES_MAX][..], 1).unwrap();
    let packed = |offset| Message { sys_flag: FLAG_COMPRESSED | 0x2 << 8, ..Message::new(offset, &bomb) };
    let messages: Vec<Message> = (0..6).map(packed).collect();
    let (records, whole) = decoded(&messages, 0).unwrap();
    assert_eq!((records.len(), whole), (4, false));
    let (records, whole) = decoded(&messages[4..], 4).unwrap();
    assert_eq!((records.len(), whole), (2, true));
}

#[test]
fn a_broken_frame_ends_the_batch_and_is_an_error_when_it_comes_first() {
    let good = Message::new(0, b"a").bytes();
    let broken = Message { magic: 0, ..Message::new(1, b"b") }.bytes();
    let both: Bytes = [good, broken.clone()].concat().into();
    let (records, whole) = decode(&queue(), both, bounds(0)).unwrap();
    assert_eq!((records.len(), whole), (1, false));
    let error = decode(&queue(), broken.into(), bounds(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DataLoss);
    assert!(error.to_string().contains("offset=1"), "{error}");
}

#[test]
fn every_lying_length_is_found() {
    let good = Message::new(0, b"body").bytes();
    let body_length = good.len() - (2 + 7) - (1 + 5) - 4 - 4;
    let topic_length = good.len() - (2 + 7) - (1 + 5);
    for lie in [0, 3, 4, 87, good.len() - 1, good.len() + 1, 1 << 30, u32::MAX as usize] {
        let mut bytes = good.clone();
        bytes[..4].copy_from_slice(&u32::try_from(lie).unwrap().to_be_bytes());
        assert!(decode(&queue(), bytes.into(), bounds(0)).is_err(), "total {lie}");
        let mut bytes = good.clone();
        bytes[body_length..body_length + 4].copy_from_slice(&u32::try_from(lie).unwrap().to_be_bytes());
        let told = decode(&queue(), bytes.into(), bounds(0));
        assert_eq!(told.is_ok(), lie == 4, "body {lie}");
    }
    for lie in [4, 6, 255] {
        let mut bytes = good.clone();
        bytes[topic_length] = lie;
        assert!(decode(&queue(), bytes.into(), bounds(0)).is_err(), "topic {lie}");
    }
    for cut in 1..good.len() {
        assert!(decode(&queue(), good[..cut].to_vec().into(), bounds(0)).is_err(), "cut {cut}");
    }
    let negative = Message::new(u64::MAX, b"").bytes();
    assert!(decode(&queue(), negative.into(), bounds(u64::MAX)).is_err());
}

fn inner(base: u64, number: &str, bodies: &[&[u8]]) -> Message {
    let mut batch = MessageBatch::default();
    for body in bodies {
        batch.push(b"KEYS\x01inner\x02", body).unwrap();
    }
    let properties = format!("INNER_NUM\x01{number}\x02").into_bytes();
    Message { sys_flag: FLAG_INNER_BATCH, properties, ..Message::new(base, batch.as_bytes()) }
}

#[test]
fn an_inner_batch_is_its_messages() {
    let messages = [inner(4, "3", &[b"a", b"bb", b"ccc"]), Message::new(7, b"plain")];
    let (records, whole) = decoded(&messages, 4).unwrap();
    assert!(whole);
    assert_eq!(bodies(&records), [Ok(b"a".as_slice()), Ok(b"bb"), Ok(b"ccc"), Ok(b"plain")]);
    assert_eq!(records.iter().nth(1).unwrap().property("KEYS"), Some(b"inner".as_slice()));
    // A pull may begin in the middle of one, and end there.
    let (records, _) = decoded(&messages, 6).unwrap();
    assert_eq!(records.iter().map(|record| record.offset().get()).collect::<Vec<_>>(), [6, 7]);
    let (records, whole) = decode(&queue(), bytes(&messages), Bounds { records_max: 2, ..bounds(4) }).unwrap();
    assert_eq!((records.len(), whole), (2, false));
}

#[test]
fn an_inner_batch_that_lies_keeps_its_places_or_is_data_loss() {
    let (records, _) = decoded(&[inner(0, "3", &[b"a", b"b"]), Message::new(3, b"d")], 0).unwrap();
    assert_eq!(records.len(), 4);
    assert!(bodies(&records)[2].is_err());
    let compressed = Message { sys_flag: FLAG_INNER_BATCH | FLAG_COMPRESSED, ..inner(0, "2", &[b"a", b"b"]) };
    assert!(bodies(&decoded(&[compressed], 0).unwrap().0).iter().all(Result::is_err));
    for number in ["0", "x", "-1", "99999999999999999999", "65537"] {
        assert!(decoded(&[inner(0, number, &[b"a"])], 0).is_err(), "{number}");
    }
    assert!(decoded(&[inner(u64::MAX / 2, "65536", &[b"a"])], 0).is_err());
}

#[test]
fn limits_are_kept_but_one_record_always_comes() {
    let messages: Vec<Message> = (0..10).map(|offset| Message::new(offset, &[b'x'; 100])).collect();
    let limited = |records_max, bytes_max| {
        decode(&queue(), bytes(&messages), Bounds { from: Offset::ZERO, records_max, bytes_max }).unwrap().0.len()
    };
    assert_eq!([limited(3, 1 << 20), limited(100, 1), limited(100, 250), limited(100, 1 << 20)], [3, 1, 2, 10]);
}

#[test]
fn a_look_up_takes_the_right_queue_and_key_only() {
    let keyed = |queue, offset, key: &str| Message {
        queue,
        properties: format!("UNIQ_KEY\x01{key}\x02").into_bytes(),
        ..Message::new(offset, b"")
    };
    let messages = [keyed(3, 9, "K"), keyed(3, 4, "K"), keyed(2, 5, "K"), keyed(3, 6, "K2")];
    assert_eq!(offsets_with(&bytes(&messages), 3, "K").unwrap(), [Offset::new(4), Offset::new(9)]);
    assert!(offsets_with(&[1, 2, 3], 3, "K").is_err());
}

fn everything(record: RecordRef<'_>) -> usize {
    record.body().map_or(0, <[u8]>::len) + record.properties().len() + record.property("KEYS").map_or(0, <[u8]>::len)
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), from in 0..4_u64) {
        if let Ok((records, _)) = decode(&queue(), bytes.into(), bounds(from)) {
            records.iter().map(everything).sum::<usize>();
        }
    }

    /// One changed byte gives an error or a batch whose offsets are dense from the asked one on, and never another body
    /// that passes for a good one.
    #[test]
    fn a_changed_byte_never_shifts_or_forges_a_record(
        at in any::<prop::sample::Index>(), to in any::<u8>(), zipped in any::<bool>(), inner_batch in any::<bool>(),
    ) {
        let body = if zipped { zstd::encode_all(&b"hello"[..], 1).unwrap() } else { b"hello".to_vec() };
        let sys_flag = if zipped { FLAG_COMPRESSED | 0x2 << 8 } else { 0 };
        let first = if inner_batch { inner(0, "1", &[b"hello"]) } else { Message { sys_flag, ..Message::new(0, &body) } };
        let mut raw = bytes(&[first, Message::new(1, b"world")]).to_vec();
        let at = at.index(raw.len());
        raw[at] = to;
        if let Ok((records, _)) = decode(&queue(), raw.into(), bounds(0)) {
            for (number, record) in records.iter().enumerate() {
                prop_assert_eq!(record.offset().get(), number as u64);
                everything(record);
            }
        }
    }
}

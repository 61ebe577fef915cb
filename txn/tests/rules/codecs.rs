//! Every format survives its round trip, has one form, and refuses what is cut, changed or made up.

use crate::strategies::{body, identity, record};
use onceflow_txn::*;
use onceflow_types::wire::checksum;
use onceflow_types::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Puts a good checksum behind changed content.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - 4);
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn frame_time() -> impl Strategy<Value = Option<FrameTime>> {
    proptest::option::of((any::<i64>(), any::<bool>(), 1..=u32::MAX)).prop_map(|said| {
        said.map(|(watermark, idle, tasks)| FrameTime { watermark: Timestamp::from_millis(watermark), idle, tasks })
    })
}

proptest! {
    #[test]
    fn records_survive(record in record()) {
        prop_assert_eq!(decode(&record.encode()).unwrap(), Decoded::Record(record));
    }

    #[test]
    fn every_cut_and_every_changed_byte_of_a_record_is_foreign(record in record(), mask in 1..=u8::MAX) {
        let bytes = record.encode();
        for at in 0..bytes.len() {
            prop_assert!(matches!(decode(&bytes[..at]).unwrap(), Decoded::Foreign(_)), "cut at {}", at);
            let mut changed = bytes.clone();
            changed[at] ^= mask;
            prop_assert!(matches!(decode(&changed).unwrap(), Decoded::Foreign(_)), "changed at {}", at);
        }
    }

    /// A forger who knows the checksum gets a record that has this one form, or nothing.
    #[test]
    fn a_record_has_one_form(record in record(), at: prop::sample::Index, mask in 1..=u8::MAX) {
        let mut bytes = record.encode();
        let at = 5 + at.index(bytes.len() - 9);
        bytes[at] ^= mask;
        let bytes = resealed(bytes);
        if let Decoded::Record(other) = decode(&bytes).unwrap() {
            prop_assert_eq!(other.encode(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_foreign(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(matches!(decode(&bytes).unwrap(), Decoded::Foreign(_)));
        let ours = [&RECORD_MAGIC[..], &bytes].concat();
        prop_assert!(matches!(decode(&ours).unwrap(), Decoded::Foreign(_)));
    }

    #[test]
    fn bodies_survive(body in body()) {
        let bytes = body.encode().unwrap();
        prop_assert_eq!(EpochBody::decode(&bytes).unwrap(), body);
    }

    #[test]
    fn a_changed_body_never_panics_and_keeps_to_its_bound(body in body(), at: prop::sample::Index, byte: u8) {
        let mut bytes = body.encode().unwrap();
        for len in 0..bytes.len() {
            let _ = EpochBody::decode(&bytes[..len]);
        }
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = EpochBody::decode(&bytes);
    }

    #[test]
    fn a_cut_plain_body_is_refused(body in body()) {
        let bytes = body.encode().unwrap();
        if bytes[1] == 0 {
            for len in 0..bytes.len() {
                prop_assert!(EpochBody::decode(&bytes[..len]).is_err(), "cut at {}", len);
            }
        }
    }

    #[test]
    fn parts_join_to_the_whole(bytes in vec(any::<u8>(), 0..200), part_bytes_max in 1usize..50) {
        let parts = split(&bytes, part_bytes_max);
        prop_assert!(parts.iter().all(|part| (1..=part_bytes_max).contains(&part.len())));
        prop_assert_eq!(parts.concat(), bytes);
    }

    #[test]
    fn identities_survive_as_properties(identity in identity()) {
        let text = identity.to_property();
        prop_assert!(text.bytes().all(|byte| (b'!'..=b'~').contains(&byte)), "{}", text);
        prop_assert_eq!(Identity::from_property(text.as_bytes()).unwrap(), identity);
    }

    #[test]
    fn every_cut_and_every_changed_byte_of_a_property_is_refused(identity in identity(), mask in 1..=u8::MAX) {
        let text = identity.to_property().into_bytes();
        for at in 0..text.len() {
            let error = Identity::from_property(&text[..at]).unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::Record, "cut at {}", at);
            let mut changed = text.clone();
            changed[at] ^= mask;
            let error = Identity::from_property(&changed).unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::Record, "changed at {}", at);
        }
    }

    #[test]
    fn a_property_has_one_form(identity in identity(), at: prop::sample::Index, byte in b' '..=b'~') {
        let mut text = identity.to_property().into_bytes();
        let content = text.len() - 8;
        text[2 + at.index(content - 2)] = byte;
        text.truncate(content);
        let sum = format!("{:08x}", checksum(&text));
        text.extend(sum.bytes());
        if let Ok(other) = Identity::from_property(&text) {
            prop_assert_eq!(other.to_property().into_bytes(), text);
        }
    }

    #[test]
    fn a_writer_writes_what_each_identity_would(template in identity(), messages in vec((0..1000u64, identity()), 1..8)) {
        let template = Identity { sequence: Sequence::new(SEQUENCE_MAX.get() / 2), floor: Sequence::ZERO, ..template };
        let mut writer = IdentityWriter::of(&template);
        for (sequence, other) in messages {
            let one = Identity { sequence: Sequence::new(sequence), source: other.source, ..template.clone() };
            let mut text = b"before".to_vec();
            let source = one.source.as_ref().map(|(partition, offset)| (partition, *offset));
            writer.append(one.sequence, source, &mut text);
            prop_assert_eq!(text[6..].to_vec(), one.to_property().into_bytes());
        }
    }

    /// Texts of two channels, some of them damaged or forged, one after the other.
    #[test]
    fn a_reader_reads_what_each_text_says(
        channels in (identity(), identity()),
        messages in vec((any::<bool>(), 0..40u64, 0..40u64, any::<prop::sample::Index>(), 0..6u8, any::<u8>()), 1..20),
    ) {
        let mut reader = IdentityReader::default();
        for (first, sequence, offset, at, change, byte) in messages {
            let channel = if first { &channels.0 } else { &channels.1 };
            let source = channel.source.clone().map(|(partition, _)| (partition, Offset::new(offset)));
            let (sequence, floor) = (Sequence::new(20 + sequence), Sequence::new(20));
            let mut text = Identity { sequence, floor, source, ..channel.clone() }.to_property().into_bytes();
            let at = at.index(text.len());
            if change < 2 {
                text[at] = byte;
            }
            if change == 0 {
                text.truncate(text.len() - 8);
                let sum = format!("{:08x}", checksum(&text));
                text.extend(sum.bytes());
            }
            match (reader.read(&text), Identity::from_property(&text)) {
                (Ok(read), Ok(expected)) => prop_assert_eq!(read, &expected),
                (Err(read), Err(expected)) => prop_assert_eq!(read.kind(), expected.kind()),
                (read, expected) => prop_assert!(false, "{:?} {:?}", read.is_ok(), expected.is_ok()),
            }
        }
    }

    #[test]
    fn frames_survive(
        identity in identity(), time: i64, records: u32, said in frame_time(), messages in vec(0u8..3, 0..500),
        compress: bool,
    ) {
        let mut body = b"before".to_vec();
        let base = Timestamp::from_millis(time);
        Frame::encode_timed_into(&mut body, &identity, base, records, said, &messages, compress);
        let frame = Frame::decode(&body[6..], 500).unwrap();
        prop_assert_eq!((&frame.identity, frame.time), (&identity, said));
        prop_assert_eq!((frame.base_time.as_millis(), frame.records), (time, records));
        let mut scratch = vec![1, 2, 3];
        prop_assert_eq!(frame.messages(&mut scratch).unwrap(), &messages[..]);
        if !messages.is_empty() {
            let error = Frame::decode(&body[6..], messages.len() - 1).unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::Record);
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_of_a_frame_is_refused(
        identity in identity(), said in frame_time(), messages in vec(0u8..3, 0..100), mask in 1..=u8::MAX,
    ) {
        let mut body = vec![];
        Frame::encode_timed_into(&mut body, &identity, Timestamp::MIN, 1, said, &messages, true);
        for at in 0..body.len() {
            prop_assert_eq!(Frame::decode(&body[..at], 1 << 20).unwrap_err().kind(), ErrorKind::Record);
            let mut changed = body.clone();
            changed[at] ^= mask;
            prop_assert_eq!(Frame::decode(&changed, 1 << 20).unwrap_err().kind(), ErrorKind::Record);
        }
    }

    /// A forger who knows the checksum neither makes us panic nor inflates more than the bound.
    #[test]
    fn a_forged_frame_keeps_to_its_bound(
        identity in identity(), said in frame_time(), messages in vec(0u8..3, 0..300), at: prop::sample::Index, byte: u8,
    ) {
        let mut body = vec![];
        Frame::encode_timed_into(&mut body, &identity, Timestamp::MIN, 1, said, &messages, true);
        let at = 5 + at.index(body.len() - 9);
        body[at] = byte;
        let body = resealed(body);
        if let Ok(frame) = Frame::decode(&body, 1000) {
            let mut scratch = vec![];
            if let Ok(messages) = frame.messages(&mut scratch) {
                prop_assert!(messages.len() <= 1000);
            }
        }
    }

    #[test]
    fn channel_keys_survive(identity in identity(), target in crate::strategies::partition()) {
        let key = ChannelKey::of(&identity, &target);
        let mut bytes = vec![];
        key.encode(&mut bytes);
        let mut from = wire::Decoder::new(&bytes);
        prop_assert_eq!(ChannelKey::decode(&mut from).unwrap(), key);
        from.finish().unwrap();
    }
}

#[test]
fn a_newer_record_stops_and_a_damaged_newer_one_does_not() {
    let release = Release { incarnation: Incarnation::new(1), generation: Generation::new(2), epoch: Epoch::new(3) };
    let mut bytes = JournalRecord::Release(release).encode();
    bytes[4] = RECORD_VERSION + 1;
    assert_eq!(decode(&bytes).unwrap(), Decoded::Foreign(Foreign::BadChecksum));
    assert_eq!(decode(&resealed(bytes.clone())).unwrap_err().kind(), ErrorKind::Invalid);
    bytes[4] = 0;
    assert_eq!(decode(&resealed(bytes)).unwrap(), Decoded::Foreign(Foreign::Malformed));
    assert_eq!(decode(b"").unwrap(), Decoded::Foreign(Foreign::NotOurs));
    assert_eq!(decode(b"OFJR").unwrap(), Decoded::Foreign(Foreign::BadChecksum));
}

#[test]
fn newer_bodies_identities_and_frames_say_so() {
    assert_eq!(EpochBody::decode(&[2, 0]).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(EpochBody::decode(&[]).unwrap_err().kind(), ErrorKind::DataLoss);
    let text = "2;anything at all;";
    let property = format!("{text}{:08x}", checksum(text.as_bytes()));
    assert_eq!(Identity::from_property(property.as_bytes()).unwrap_err().kind(), ErrorKind::Invalid);
    let frame = resealed([&FRAME_MAGIC[..], &[3, 0, 0, 0, 0, 0]].concat());
    assert_eq!(Frame::decode(&frame, 10).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn an_inflated_length_that_lies_is_refused_before_memory_is_taken() {
    let mut bytes = vec![1, 1];
    wire::Encode::put_count(&mut bytes, BODY_BYTES_MAX as u64);
    bytes.extend([0; 8]);
    assert_eq!(EpochBody::decode(&bytes).unwrap_err().kind(), ErrorKind::DataLoss);
    bytes.truncate(2);
    wire::Encode::put_count(&mut bytes, u64::MAX);
    assert_eq!(EpochBody::decode(&bytes).unwrap_err().kind(), ErrorKind::DataLoss);
}

#[test]
fn a_body_beyond_the_bound_is_refused_before_it_is_decided() {
    let body = EpochBody { changes: vec![0; BODY_BYTES_MAX], ..EpochBody::default() };
    assert_eq!(body.encode().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
#[should_panic(expected = "beyond the bounds")]
fn a_commit_that_says_its_own_epoch_is_published_cannot_be_written() {
    let commit = Commit {
        incarnation: Incarnation::new(1),
        generation: Generation::ZERO,
        epoch: Epoch::new(1),
        offsets: Offsets::default(),
        watermarks: [].into(),
        clock: Timestamp::MIN,
        channels: [].into(),
        tails: Offsets::default(),
        published_through: Epoch::new(1),
        body: CommitBody::Inline(vec![]),
    };
    JournalRecord::Commit(Box::new(commit)).encode();
}

//! The identity of an output message, read as `docs/formats.md` draws it:
//!
//! ```text
//! 1;job;incarnation;subtopology;broker;queue;generation;epoch;sink;floor;topic;broker;queue;sequence;offset;crc
//! ```

/// The property that holds it.
pub(crate) const PROPERTY: &str = "ONCEFLOW";
const FIELDS: usize = 16;
/// The reversed polynomial of CRC32C (Castagnoli).
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The part of an identity that the audit needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) job: String,
    /// Incarnation, subtopology, broker and queue of the task.
    pub(crate) task: String,
    pub(crate) generation: u64,
    pub(crate) epoch: u64,
    pub(crate) sink: String,
    pub(crate) floor: u64,
    pub(crate) sequence: u64,
}

impl Identity {
    /// None for whatever is not a whole identity.
    pub(crate) fn parse(text: &str) -> Option<Identity> {
        let (covered, crc) = text.split_at_checked(text.rfind(';')? + 1)?;
        let stated = u32::from_str_radix(crc, 16).ok().filter(|_| crc.len() == 8)?;
        if stated != crc32c(covered.as_bytes()) {
            return None;
        }
        let fields: Vec<&str> = text.split(';').collect();
        if fields.len() != FIELDS || *fields.first()? != "1" {
            return None;
        }
        let word = |number: usize| fields.get(number).copied();
        let number = |at: usize| word(at)?.parse::<u64>().ok();
        let identity = Identity {
            job: word(1)?.to_owned(),
            task: fields.get(2..6)?.join(";"),
            generation: number(6)?,
            epoch: number(7)?,
            sink: word(8)?.to_owned(),
            floor: number(9)?,
            sequence: number(13)?,
        };
        (identity.floor <= identity.sequence).then_some(identity)
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
        }
    }
    !crc
}

/// Writes an identity, for the tests.
#[cfg(test)]
pub(crate) fn written(identity: &Identity) -> String {
    let Identity { job, task, generation, epoch, sink, floor, sequence } = identity;
    let text = format!("1;{job};{task};{generation};{epoch};{sink};{floor};-;-;-;{sequence};-;");
    let crc = crc32c(text.as_bytes());
    format!("{text}{crc:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            job: "soak".to_owned(),
            task: "00ff;by-card;broker-a;3".to_owned(),
            generation: 17,
            epoch: 5,
            sink: "out".to_owned(),
            floor: 2,
            sequence: 9,
        }
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of the catalogue of CRC algorithms.
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn an_identity_is_read_and_a_damaged_one_is_not() {
        let text = written(&identity());
        assert_eq!(Identity::parse(&text), Some(identity()));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(Identity::parse(std::str::from_utf8(&bytes).unwrap()), None, "{at}");
        }
        assert_eq!(Identity::parse(""), None);
        assert_eq!(Identity::parse(&text[..text.len() - 1]), None);
    }

    #[test]
    fn a_floor_above_the_sequence_and_another_version_are_refused() {
        assert_eq!(Identity::parse(&written(&Identity { floor: 10, ..identity() })), None);
        let other = format!("2{}", &written(&identity())[1..]);
        let (covered, _) = other.split_at(other.len() - 8);
        assert_eq!(Identity::parse(&format!("{covered}{:08x}", crc32c(covered.as_bytes()))), None);
    }
}

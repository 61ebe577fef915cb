//! Inflating bodies, with a cap: a body says nothing true about its inflated size until it has been inflated.

use std::io::Read;

/// Most bytes that one body may have after inflation.
pub const INFLATED_BYTES_MAX: usize = 16 << 20;

/// `sysFlag` bits 8 to 10 tell the compression (`MessageSysFlag`); 0 is zlib, too, as old producers set nothing.
const COMPRESSION_MASK: i32 = 0x7 << 8;
const LZ4: i32 = 0x1 << 8;
const ZSTD: i32 = 0x2 << 8;
const ZLIB: i32 = 0x3 << 8;
/// First bytes of an lz4 frame, which Java producers write.
const LZ4_FRAME_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

const TOO_LARGE: &str = "inflated body is larger than 16 MiB";
const BROKEN: &str = "compressed body cannot be inflated";

/// Appends the inflated body to `to` and returns its length; on error `to` is as before.
pub(crate) fn inflate(sys_flag: i32, body: &[u8], to: &mut Vec<u8>) -> Result<usize, &'static str> {
    let start = to.len();
    let inflated = match sys_flag & COMPRESSION_MASK {
        0 | ZLIB => read_capped(flate2::read::ZlibDecoder::new(body), to),
        ZSTD => match zstd::stream::read::Decoder::with_buffer(body) {
            Ok(decoder) => read_capped(decoder, to),
            Err(_) => Err(BROKEN),
        },
        LZ4 if body.starts_with(&LZ4_FRAME_MAGIC) => read_capped(lz4_flex::frame::FrameDecoder::new(body), to),
        LZ4 => lz4_block(body, to),
        _ => Err("body has an unknown compression"),
    };
    inflated.inspect_err(|_| to.truncate(start))
}

fn read_capped(from: impl Read, to: &mut Vec<u8>) -> Result<usize, &'static str> {
    let cap = u64::try_from(INFLATED_BYTES_MAX).unwrap_or(u64::MAX);
    match from.take(cap + 1).read_to_end(to) {
        Ok(read) if read > INFLATED_BYTES_MAX => Err(TOO_LARGE),
        Ok(read) => Ok(read),
        Err(_) => Err(BROKEN),
    }
}

/// A block with its inflated size in front, as `rocketmq-client-rust` writes it.
fn lz4_block(body: &[u8], to: &mut Vec<u8>) -> Result<usize, &'static str> {
    let (size, block) = body.split_first_chunk::<4>().ok_or(BROKEN)?;
    let size = u32::from_le_bytes(*size) as usize;
    if size > INFLATED_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    // A block of n bytes cannot inflate to more than 255 n, so a lying size costs no memory.
    if size > block.len().saturating_mul(255) {
        return Err(BROKEN);
    }
    let start = to.len();
    to.resize(start + size, 0);
    let room = to.get_mut(start..).ok_or(BROKEN)?;
    match lz4_flex::block::decompress_into(block, room) {
        Ok(written) if written == size => Ok(size),
        _ => Err(BROKEN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn zlib(body: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(vec![], flate2::Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    fn lz4_frame(body: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(vec![]);
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    fn packed(body: &[u8]) -> [(i32, Vec<u8>); 5] {
        [
            (0, zlib(body)),
            (ZLIB, zlib(body)),
            (ZSTD, zstd::encode_all(body, 1).unwrap()),
            (LZ4, lz4_frame(body)),
            (LZ4, lz4_flex::block::compress_prepend_size(body)),
        ]
    }

    #[test]
    fn every_compression_is_undone_behind_what_is_there() {
        let body = b"to be or not to be or not to be".repeat(100);
        for (flag, packed) in packed(&body) {
            let mut to = b"before".to_vec();
            assert_eq!(inflate(flag | 1, &packed, &mut to), Ok(body.len()), "flag {flag:x}");
            assert_eq!(to, [b"before", &body[..]].concat());
        }
    }

    #[test]
    fn cut_or_mislabelled_bodies_are_refused_and_leave_no_trace() {
        let body = b"to be or not to be or not to be".repeat(100);
        for (flag, packed) in packed(&body) {
            for wrong in [&packed[..packed.len() / 2], &packed[..1], b"", b"plain text, not compressed at all"] {
                let mut to = b"before".to_vec();
                assert!(inflate(flag, wrong, &mut to).is_err(), "flag {flag:x} bytes {}", wrong.len());
                assert_eq!(to, b"before");
            }
        }
        assert!(inflate(0x4 << 8, &zlib(&body), &mut vec![]).is_err());
    }

    #[test]
    fn what_follows_a_compressed_body_is_no_part_of_it() {
        let body = b"to be or not to be or not to be".repeat(100);
        for (flag, mut packed) in packed(&body) {
            packed.extend_from_slice(b"and more of it");
            let mut to = vec![];
            match inflate(flag, &packed, &mut to) {
                Ok(bytes) => assert_eq!((bytes, &to), (body.len(), &body), "flag {flag:x}"),
                Err(_) => assert!(to.is_empty(), "flag {flag:x}"),
            }
        }
    }

    #[test]
    fn a_bomb_is_stopped_at_the_cap() {
        let bomb = vec![0; INFLATED_BYTES_MAX + 1];
        for (flag, packed) in packed(&bomb) {
            let mut to = vec![];
            assert_eq!(inflate(flag, &packed, &mut to), Err(TOO_LARGE), "flag {flag:x}");
            assert!(to.is_empty());
        }
        for (flag, packed) in packed(&bomb[1..]) {
            assert_eq!(inflate(flag, &packed, &mut vec![]), Ok(INFLATED_BYTES_MAX), "flag {flag:x}");
        }
    }

    #[test]
    fn a_lying_size_allocates_nothing() {
        let mut to = vec![];
        assert!(inflate(LZ4, &[0xff, 0xff, 0xff, 0x00, 1, 2], &mut to).is_err());
        assert!(inflate(LZ4, &[0xff; 8], &mut to).is_err());
        assert_eq!(to.capacity(), 0);
    }
}

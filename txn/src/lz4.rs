//! LZ4 blocks with a bound on both sides.

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use onceflow_types::{Error, Result};

/// What one compressed byte can stand for at most: a match length grows by 255 with each byte.
const EXPANSION_MAX: usize = 255;

/// A block of this size or less is compressed without trying samples of it first.
const SAMPLED_BYTES_MIN: usize = 128 << 10;
/// How many samples are tried, evenly from the block.
const SAMPLES: usize = 8;
const SAMPLE_BYTES: usize = 4 << 10;

/// Appends `bytes` as one LZ4 block, but only when that is smaller; returns whether it did. Of a large block, samples are
/// compressed first: the body of an epoch with framed output is mostly frames that are compressed already, and to find that
/// out byte by byte was an eighth of all work.
pub(crate) fn compress_if_smaller(bytes: &[u8], to: &mut Vec<u8>) -> bool {
    if bytes.len() > SAMPLED_BYTES_MIN && !samples_are_smaller(bytes) {
        return false;
    }
    let before = to.len();
    to.resize(before + get_maximum_output_size(bytes.len()), 0);
    let room = to.get_mut(before..).unwrap_or_default();
    let len = compress_into(bytes, room).unwrap_or(usize::MAX);
    let smaller = len < bytes.len();
    to.truncate(if smaller { before + len } else { before });
    smaller
}

/// Whether the samples get smaller by a quarter at least; less is not worth the work.
fn samples_are_smaller(bytes: &[u8]) -> bool {
    let mut room = vec![0; get_maximum_output_size(SAMPLE_BYTES)];
    let samples = bytes.chunks_exact((bytes.len() / SAMPLES).max(1)).filter_map(|part| part.get(..SAMPLE_BYTES));
    let (mut raw, mut compressed) = (0, 0);
    for sample in samples {
        raw += sample.len();
        compressed += compress_into(sample, &mut room).unwrap_or(sample.len());
    }
    compressed < raw / 4 * 3
}

/// Inflates one LZ4 block to exactly `raw_len` bytes, which replace the content of `to`.
///
/// # Errors
/// `Corrupt` when the block cannot be that long or is damaged; nothing is allocated for a length that lies.
pub(crate) fn inflate(block: &[u8], raw_len: usize, to: &mut Vec<u8>) -> Result<()> {
    if raw_len > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(Error::corrupt(format!("compressed length lies: compressed={} raw={raw_len}", block.len())));
    }
    to.clear();
    to.resize(raw_len, 0);
    let len = decompress_into(block, to).map_err(|e| Error::corrupt("lz4 block is damaged").with_source(e))?;
    if len != raw_len {
        return Err(Error::corrupt(format!("lz4 block has another length: said={raw_len} is={len}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(bytes in proptest::collection::vec(0u8..4, 0..2000)) {
            let mut block = vec![7];
            if compress_if_smaller(&bytes, &mut block) {
                let mut raw = vec![];
                inflate(&block[1..], bytes.len(), &mut raw).unwrap();
                prop_assert_eq!(raw, bytes);
            } else {
                prop_assert_eq!(block, vec![7]);
            }
        }

        #[test]
        fn hostile_blocks_never_inflate_to_another_length(
            block in proptest::collection::vec(any::<u8>(), 0..300), raw_len in 0usize..5000,
        ) {
            let mut raw = vec![];
            if inflate(&block, raw_len, &mut raw).is_ok() {
                prop_assert_eq!(raw.len(), raw_len);
            }
        }
    }

    // Aim: a large block is judged by its samples, and rightly. Method: noise, text, and noise with some text in it.
    #[test]
    fn large_blocks_are_compressed_where_it_pays() {
        let mut state = 1u64;
        let mut noise = |bytes: usize| -> Vec<u8> {
            let next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            };
            std::iter::repeat_with(next).take(bytes).collect()
        };
        let text = |bytes: usize| b"card 4711 pays 12.50 ".repeat(bytes / 21);
        let is_smaller = |bytes: &[u8]| compress_if_smaller(bytes, &mut vec![]);
        assert!(is_smaller(&text(1 << 20)));
        assert!(!is_smaller(&noise(1 << 20)));
        assert!(is_smaller(&[noise(1 << 19), text(1 << 19)].concat()));
        // Not worth it, though something could be saved.
        assert!(!is_smaller(&[noise(1 << 20), text(1 << 17)].concat()));
    }
}

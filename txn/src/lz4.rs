//! LZ4 blocks with a bound on both sides.

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use onceflow_types::{Error, Result};

/// What one compressed byte can stand for at most: a match length grows by 255 with each byte.
const EXPANSION_MAX: usize = 255;

/// Appends `bytes` as one LZ4 block, but only when that is smaller; returns whether it did.
pub(crate) fn compress_if_smaller(bytes: &[u8], to: &mut Vec<u8>) -> bool {
    let before = to.len();
    to.resize(before + get_maximum_output_size(bytes.len()), 0);
    let room = to.get_mut(before..).unwrap_or_default();
    let len = compress_into(bytes, room).unwrap_or(usize::MAX);
    let smaller = len < bytes.len();
    to.truncate(if smaller { before + len } else { before });
    smaller
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
}

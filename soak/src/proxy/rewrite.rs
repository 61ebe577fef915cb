//! Makes a name server's answers name another broker address.

/// Replaces one address by another of the same length in whole remoting frames, so that no length changes.
///
/// ```text
/// 0    4        length of what follows, u32, big-endian
/// 4    length   header and body; routes are JSON text with addresses in it
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Rewrite {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Rewrite {
    /// None when the two differ in length.
    pub(crate) fn new(from: &str, to: &str) -> Option<Rewrite> {
        (from.len() == to.len()).then(|| Rewrite { from: from.into(), to: to.into() })
    }

    /// Takes the whole frames off the front of `buffer` and returns them rewritten.
    pub(super) fn whole_frames(&self, buffer: &mut Vec<u8>) -> Vec<u8> {
        let mut end = 0;
        while let Some(length) = buffer.get(end..).and_then(|rest| rest.first_chunk::<4>()) {
            let next = end + 4 + usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX - end - 4);
            if next > buffer.len() {
                break;
            }
            end = next;
        }
        let rest = buffer.split_off(end);
        let mut frames = std::mem::replace(buffer, rest);
        self.replace(&mut frames);
        frames
    }

    fn replace(&self, text: &mut [u8]) {
        let mut at = 0;
        while let Some(window) = text.get_mut(at..at + self.from.len()) {
            if *window == *self.from {
                window.copy_from_slice(&self.to);
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap();
        [&length.to_be_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn an_address_is_replaced_even_when_it_arrives_in_two_pieces() {
        let rewrite = Rewrite::new("127.0.0.1:30010", "127.0.0.1:45678").unwrap();
        let all = [frame("{0:\"127.0.0.1:30010\"}"), frame("127.0.0.1:30011")].concat();
        let wanted = [frame("{0:\"127.0.0.1:45678\"}"), frame("127.0.0.1:30011")].concat();
        for cut in 0..all.len() {
            let mut buffer = all[..cut].to_vec();
            let mut out = rewrite.whole_frames(&mut buffer);
            buffer.extend_from_slice(&all[cut..]);
            out.extend(rewrite.whole_frames(&mut buffer));
            assert_eq!(out, wanted, "cut={cut}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn addresses_of_different_lengths_are_refused() {
        assert!(Rewrite::new("127.0.0.1:3001", "127.0.0.1:45678").is_none());
    }
}

//! A short list of numbers, of which there are many.

/// As many numbers lie inside; more are allocated.
const INLINE: usize = 3;

/// Numbers in an order that their owner keeps. Mostly none or few, so that a list takes 16 bytes and no allocation.
pub(super) struct Numbers(Form);

enum Form {
    Few(u8, [u32; INLINE]),
    // Behind a box, as nearly no list has so many, and the others would all be longer.
    Many(Box<Many>),
}

struct Many {
    numbers: Vec<u32>,
}

impl Numbers {
    pub(super) const EMPTY: Numbers = Numbers(Form::Few(0, [0; INLINE]));

    #[inline]
    pub(super) fn as_slice(&self) -> &[u32] {
        match &self.0 {
            Form::Few(len, numbers) => numbers.get(..usize::from(*len)).unwrap_or(numbers),
            Form::Many(many) => &many.numbers,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Puts a number before the one at `at`, or behind all when there is none.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, number: u32) {
        match &mut self.0 {
            Form::Few(len, numbers) if usize::from(*len) < INLINE => {
                *len += 1;
                if let Some(behind) = numbers.get_mut(at..usize::from(*len)) {
                    behind.rotate_right(1);
                    if let Some(place) = behind.first_mut() {
                        *place = number;
                    }
                }
            }
            Form::Few(_, numbers) => {
                let mut many = Vec::with_capacity(INLINE * 2 + 2);
                many.extend_from_slice(numbers);
                many.insert(at.min(INLINE), number);
                self.0 = Form::Many(Box::new(Many { numbers: many }));
            }
            Form::Many(many) => many.numbers.insert(at.min(many.numbers.len()), number),
        }
    }

    /// Takes a number out; says whether it was there.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let Some(at) = self.as_slice().iter().position(|other| *other == number) else { return false };
        match &mut self.0 {
            Form::Few(len, numbers) => {
                if let Some(behind) = numbers.get_mut(at..usize::from(*len)) {
                    behind.rotate_left(1);
                }
                *len -= 1;
            }
            Form::Many(many) => {
                many.numbers.remove(at);
                self.shorten();
            }
        }
        true
    }

    /// Gives the allocation back, though not before the list is much shorter than one that needs it.
    fn shorten(&mut self) {
        if let [only] = self.as_slice() {
            self.0 = Form::Few(1, [*only; INLINE]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn a_list_is_short() {
        assert_eq!(size_of::<Numbers>(), 16);
    }

    proptest! {
        // Aim: a list is what a plain one is, however often it becomes long and short again.
        #[test]
        fn numbers_equal_a_plain_list(steps in vec((any::<bool>(), 0usize..12, 0u32..12), 0..200)) {
            let (mut numbers, mut plain) = (Numbers::EMPTY, vec![]);
            for (insert, at, number) in steps {
                let found = plain.iter().position(|other| *other == number);
                if insert && found.is_none() {
                    let at = at.min(plain.len());
                    numbers.insert(at, number);
                    plain.insert(at, number);
                } else if !insert {
                    prop_assert_eq!(numbers.remove(number), found.is_some());
                    found.map(|at| plain.remove(at));
                }
                prop_assert_eq!(numbers.as_slice(), &plain);
                prop_assert_eq!(numbers.len(), plain.len());
            }
        }
    }
}

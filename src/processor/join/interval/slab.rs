//! Things side by side in memory, each under a number.

use onceflow_types::{Error, Result};

/// Things, each under a number that another one gets when it is gone.
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Slab { places: vec![], free: vec![] }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Keeps one more; returns its number.
    pub(super) fn insert(&mut self, thing: T) -> Result<u32> {
        // What became free last is in the processor's cache.
        if let Some(number) = self.free.pop() {
            *self.places.get_mut(number as usize).ok_or_else(lost)? = Some(thing);
            return Ok(number);
        }
        // The last number is nobody's: `turns` has another use for it.
        let number = u32::try_from(self.places.len()).ok().filter(|number| *number < u32::MAX).ok_or_else(lost)?;
        self.places.push(Some(thing));
        Ok(number)
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    /// All of them, in the order of their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    /// Their numbers.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.places).filter(|(_, place)| place.is_some()).map(|(number, _)| number)
    }

    /// All numbers are below this one.
    pub(super) fn numbers_end(&self) -> u32 {
        // As many were given.
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Takes one out.
    pub(super) fn take(&mut self, number: u32) -> Option<T> {
        let thing = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(thing)
    }
}

#[cold]
fn lost() -> Error {
    Error::bug("a number of a join is lost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_and_never_twice_at_a_time() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..5).map(|thing| slab.insert(thing).unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert_eq!((slab.take(3), slab.take(3), slab.take(1), slab.take(9)), (Some(3), None, Some(1), None));
        assert_eq!(slab.len(), 3);
        assert_eq!((slab.insert(7).unwrap(), slab.insert(8).unwrap(), slab.insert(9).unwrap()), (1, 3, 5));
        *slab.get_mut(3).unwrap() += 1;
        let all: Vec<_> = (0..7).map(|number| slab.get(number).copied()).collect();
        assert_eq!(all, [Some(0), Some(7), Some(2), Some(9), Some(4), Some(9), None]);
        slab.take(2).unwrap();
        assert_eq!(slab.numbers().collect::<Vec<_>>(), [0, 1, 3, 4, 5]);
        assert_eq!(slab.iter_mut().map(|thing| *thing).collect::<Vec<_>>(), [0, 7, 9, 4, 9]);
        assert_eq!(slab.numbers_end(), 6);
    }
}

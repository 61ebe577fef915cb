//! What is made of the values of a key, or of a window: counts, sums and the like.

use crate::codec::{Data, StateValue};
use crate::processor::Number;
use onceflow_types::{Error, Result};
use std::fmt;
use std::marker::PhantomData;

/// Makes one value of many: values are added while a window is open, windows that merge are merged, and the result is taken
/// when the window fires.
///
/// # Contract
/// 1. `add` and `merge` change nothing when they fail.
/// 2. `merge(a, b)` is as if the values of `b` had been added to `a`, up to the order of the values.
/// 3. The same values give the same state: no clock, no random numbers.
///
/// ```
/// use onceflow::Accumulator;
/// use onceflow::types::Result;
///
/// /// The longest word.
/// struct Longest;
///
/// impl Accumulator<String> for Longest {
///     type State = String;
///     type Output = usize;
///
///     fn first(&self, word: &String) -> Result<String> {
///         Ok(word.clone())
///     }
///     fn add(&self, longest: &mut String, word: &String) -> Result<()> {
///         if word.len() > longest.len() {
///             longest.clone_from(word);
///         }
///         Ok(())
///     }
///     fn merge(&self, longest: &mut String, other: &String) -> Result<()> {
///         self.add(longest, other)
///     }
///     fn result(&self, longest: &String) -> usize {
///         longest.len()
///     }
/// }
/// ```
pub trait Accumulator<T>: Send + Sync + 'static {
    /// What is kept meanwhile.
    type State: StateValue + Data;
    /// What comes out.
    type Output: Data;

    /// The state of one value.
    ///
    /// # Errors
    /// `Record` when the value cannot be worked on.
    fn first(&self, value: &T) -> Result<Self::State>;

    /// Adds a value.
    ///
    /// # Errors
    /// `Record` when the value cannot be added.
    fn add(&self, state: &mut Self::State, value: &T) -> Result<()>;

    /// Adds the values of another state.
    ///
    /// # Errors
    /// `Record` when they cannot be added.
    fn merge(&self, state: &mut Self::State, other: &Self::State) -> Result<()>;

    /// What the values so far come to.
    fn result(&self, state: &Self::State) -> Self::Output;
}

/// How many values.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Count;

impl<T: Data> Accumulator<T> for Count {
    type State = u64;
    type Output = u64;

    fn first(&self, _: &T) -> Result<u64> {
        Ok(1)
    }

    fn add(&self, state: &mut u64, _: &T) -> Result<()> {
        self.merge_counts(state, 1)
    }

    fn merge(&self, state: &mut u64, other: &u64) -> Result<()> {
        self.merge_counts(state, *other)
    }

    fn result(&self, state: &u64) -> u64 {
        *state
    }
}

impl Count {
    #[expect(clippy::unused_self, reason = "reads as what it is")]
    fn merge_counts(self, state: &mut u64, other: u64) -> Result<()> {
        *state = state.checked_add(other).ok_or_else(|| Error::record("count is out of range"))?;
        Ok(())
    }
}

/// An accumulator by a function that takes something from each value.
pub(crate) struct By<F, R, K> {
    function: F,
    of: PhantomData<fn() -> (R, K)>,
}

impl<F, R, K> By<F, R, K> {
    pub(crate) fn new(function: F) -> Self {
        By { function, of: PhantomData }
    }
}

/// What [`By`] makes of what it takes.
pub(crate) enum Sum {}
pub(crate) enum Avg {}
pub(crate) enum Min {}
pub(crate) enum Max {}

impl<T: Data, N: Number, F: Fn(&T) -> N + Send + Sync + 'static> Accumulator<T> for By<F, N, Sum> {
    type State = N;
    type Output = N;

    fn first(&self, value: &T) -> Result<N> {
        N::ZERO.add((self.function)(value))
    }

    fn add(&self, state: &mut N, value: &T) -> Result<()> {
        *state = state.add((self.function)(value))?;
        Ok(())
    }

    fn merge(&self, state: &mut N, other: &N) -> Result<()> {
        *state = state.add(*other)?;
        Ok(())
    }

    fn result(&self, state: &N) -> N {
        *state
    }
}

impl<T: Data, N: Number, F: Fn(&T) -> N + Send + Sync + 'static> Accumulator<T> for By<F, N, Avg> {
    /// Sum and count.
    type State = (N, u64);
    type Output = f64;

    fn first(&self, value: &T) -> Result<(N, u64)> {
        Ok((N::ZERO.add((self.function)(value))?, 1))
    }

    fn add(&self, state: &mut (N, u64), value: &T) -> Result<()> {
        let one = self.first(value)?;
        Accumulator::<T>::merge(self, state, &one)
    }

    fn merge(&self, state: &mut (N, u64), other: &(N, u64)) -> Result<()> {
        let count = state.1.checked_add(other.1).ok_or_else(|| Error::record("count is out of range"))?;
        *state = (state.0.add(other.0)?, count);
        Ok(())
    }

    fn result(&self, state: &(N, u64)) -> f64 {
        state.0.ratio(state.1)
    }
}

macro_rules! extreme {
    ($word:ident, $better:expr) => {
        impl<T: Data, V: StateValue + Data + Ord, F: Fn(&T) -> V + Send + Sync + 'static> Accumulator<T>
            for By<F, V, $word>
        {
            type State = V;
            type Output = V;

            fn first(&self, value: &T) -> Result<V> {
                Ok((self.function)(value))
            }

            fn add(&self, state: &mut V, value: &T) -> Result<()> {
                let value = (self.function)(value);
                if $better(&value, &*state) {
                    *state = value;
                }
                Ok(())
            }

            fn merge(&self, state: &mut V, other: &V) -> Result<()> {
                if $better(other, &*state) {
                    state.clone_from(other);
                }
                Ok(())
            }

            fn result(&self, state: &V) -> V {
                state.clone()
            }
        }
    };
}
extreme!(Min, |new: &V, old: &V| new < old);
extreme!(Max, |new: &V, old: &V| new > old);

/// Values combined two at a time.
pub(crate) struct Reduce<F>(pub(crate) F);

impl<T: Data + StateValue, F: Fn(&T, &T) -> T + Send + Sync + 'static> Accumulator<T> for Reduce<F> {
    type State = T;
    type Output = T;

    fn first(&self, value: &T) -> Result<T> {
        Ok(value.clone())
    }

    fn add(&self, state: &mut T, value: &T) -> Result<()> {
        *state = (self.0)(state, value);
        Ok(())
    }

    fn merge(&self, state: &mut T, other: &T) -> Result<()> {
        Accumulator::<T>::add(self, state, other)
    }

    fn result(&self, state: &T) -> T {
        state.clone()
    }
}

/// By functions of the user's.
pub(crate) struct Aggregate<I, F, M, A> {
    pub(crate) init: I,
    pub(crate) add: F,
    pub(crate) merge: M,
    pub(crate) state: PhantomData<fn() -> A>,
}

impl<T, A, I, F, M> Accumulator<T> for Aggregate<I, F, M, A>
where
    T: Data,
    A: StateValue + Data,
    I: Fn() -> A + Send + Sync + 'static,
    F: Fn(&mut A, &T) + Send + Sync + 'static,
    M: Fn(&mut A, &A) + Send + Sync + 'static,
{
    type State = A;
    type Output = A;

    fn first(&self, value: &T) -> Result<A> {
        let mut state = (self.init)();
        (self.add)(&mut state, value);
        Ok(state)
    }

    fn add(&self, state: &mut A, value: &T) -> Result<()> {
        (self.add)(state, value);
        Ok(())
    }

    fn merge(&self, state: &mut A, other: &A) -> Result<()> {
        (self.merge)(state, other);
        Ok(())
    }

    fn result(&self, state: &A) -> A {
        state.clone()
    }
}

impl<F, R, K> fmt::Debug for By<F, R, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("By").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<A: Accumulator<i64>>(accumulator: &A, values: &[i64]) -> A::Output {
        let mut state = accumulator.first(&values[0]).unwrap();
        values[1..].iter().for_each(|value| accumulator.add(&mut state, value).unwrap());
        // Merged from any two parts it is the same.
        for cut in 1..values.len() {
            let mut one = accumulator.first(&values[0]).unwrap();
            values[1..cut].iter().for_each(|value| accumulator.add(&mut one, value).unwrap());
            let mut other = accumulator.first(&values[cut]).unwrap();
            values[cut + 1..].iter().for_each(|value| accumulator.add(&mut other, value).unwrap());
            accumulator.merge(&mut one, &other).unwrap();
            let bytes = |state: &A::State| postcard::to_allocvec(state).unwrap();
            assert_eq!(bytes(&one), bytes(&state));
        }
        accumulator.result(&state)
    }

    #[test]
    fn each_says_what_its_name_says() {
        let values = [4, -7, 9, 0];
        assert_eq!(of(&Count, &values), 4);
        assert_eq!(of(&By::<_, i64, Sum>::new(|value: &i64| *value), &values), 6);
        assert_eq!(of(&By::<_, i64, Min>::new(|value: &i64| *value), &values), -7);
        assert_eq!(of(&By::<_, i64, Max>::new(|value: &i64| *value), &values), 9);
        assert!((of(&By::<_, i64, Avg>::new(|value: &i64| *value), &values) - 1.5).abs() < 1e-12);
        assert_eq!(of(&Reduce(|one: &i64, other: &i64| one.max(other).to_owned()), &values), 9);
    }

    #[test]
    fn a_sum_out_of_range_changes_nothing() {
        let sum = By::<_, i64, Sum>::new(|value: &i64| *value);
        let mut state = sum.first(&i64::MAX).unwrap();
        assert!(sum.add(&mut state, &1).is_err());
        assert!(Accumulator::<i64>::merge(&sum, &mut state, &1).is_err());
        sum.add(&mut state, &-1).unwrap();
        assert_eq!(state, i64::MAX - 1);
        let avg = By::<_, i64, Avg>::new(|value: &i64| *value);
        let mut state = avg.first(&i64::MAX).unwrap();
        assert!(avg.add(&mut state, &1).is_err());
        assert_eq!(state, (i64::MAX, 1));
    }
}

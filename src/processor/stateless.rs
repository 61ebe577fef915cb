//! Operators without state.

use super::{BATCH_RECORDS_MAX, Guard, Push, pass_on};
use crate::codec::Data;
use crate::record::Record;
use crate::stage::Context;
use onceflow_types::Result;
use std::sync::Arc;

/// One value for each.
pub(crate) struct Map<U, F> {
    pub(crate) function: Arc<F>,
    pub(crate) out: Vec<Record<U>>,
    pub(crate) next: Box<dyn Push<U>>,
}

impl<T: Data, U: Data, F: Fn(T) -> U + Send + Sync> Push<T> for Map<U, F> {
    pass_on!();

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        let function = &*self.function;
        self.out.extend(records.drain(..).map(|record| record.map(function)));
        self.next.push(&mut self.out, cx)
    }
}

/// One value for each, or an error for the stage's policy.
pub(crate) struct TryMap<U, F> {
    pub(crate) function: Arc<F>,
    pub(crate) guard: Guard,
    pub(crate) out: Vec<Record<U>>,
    pub(crate) next: Box<dyn Push<U>>,
}

impl<T: Data, U: Data, F: Fn(&T) -> Result<U> + Send + Sync> Push<T> for TryMap<U, F> {
    pass_on!();

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            match self.guard.attempt(cx, |_| (self.function)(&record.value)) {
                Ok(value) => self.out.push(record.with(value)),
                Err(error) => self.guard.reject(error, record.origin, record.timestamp, cx)?,
            }
        }
        self.next.push(&mut self.out, cx)
    }
}

/// Those that a predicate holds for.
pub(crate) struct Filter<T, F> {
    pub(crate) predicate: Arc<F>,
    pub(crate) next: Box<dyn Push<T>>,
}

impl<T: Data, F: Fn(&T) -> bool + Send + Sync> Push<T> for Filter<T, F> {
    pass_on!();

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        records.retain(|record| (self.predicate)(&record.value));
        self.next.push(records, cx)
    }
}

/// Any number of values for each.
pub(crate) struct FlatMap<U, F> {
    pub(crate) function: Arc<F>,
    pub(crate) out: Vec<Record<U>>,
    pub(crate) next: Box<dyn Push<U>>,
}

impl<T: Data, U: Data, I: IntoIterator<Item = U>, F: Fn(T) -> I + Send + Sync> Push<T> for FlatMap<U, F> {
    pass_on!();

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        for Record { value, timestamp, watermark, origin } in records.drain(..) {
            for value in (self.function)(value) {
                self.out.push(Record { value, timestamp, watermark, origin });
                if self.out.len() >= BATCH_RECORDS_MAX {
                    self.next.push(&mut self.out, cx)?;
                }
            }
        }
        self.next.push(&mut self.out, cx)
    }
}

/// A look at each.
pub(crate) struct Inspect<T, F> {
    pub(crate) function: Arc<F>,
    pub(crate) next: Box<dyn Push<T>>,
}

impl<T: Data, F: Fn(&T) + Send + Sync> Push<T> for Inspect<T, F> {
    pass_on!();

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        for record in &*records {
            (self.function)(&record.value);
        }
        self.next.push(records, cx)
    }
}

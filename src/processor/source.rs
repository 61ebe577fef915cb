//! Decodes source records.

use super::{Generator, Guard, Ingest, Push};
use crate::codec::{Data, Decode};
use crate::record::{Origin, Record};
use crate::stage::{Context, SourceBatch, SourceRecord};
use crate::state::TaskState;
use crate::time::{Input, Progress, Watermark};
use onceflow_log::find_property;
use onceflow_types::{Error, Result, Timestamp};
use std::sync::Arc;

/// The head of a stage: bytes in, records out.
pub(crate) struct Source<T, C> {
    pub(crate) codec: Arc<C>,
    pub(crate) guard: Guard,
    /// The tags to take; `None` takes all.
    pub(crate) tags: Option<Arc<[String]>>,
    /// `None` when nothing behind it works with time.
    pub(crate) time: Option<SourceTime>,
    pub(crate) decoded: Vec<Record<T>>,
    pub(crate) next: Box<dyn Push<T>>,
}

/// How far a source has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceTime {
    pub(crate) input: Input,
    /// Makes the watermark from the times at which messages were born; `None`: the job itself wrote the topic, and upstream
    /// tasks say how far they are.
    pub(crate) born: Option<Generator>,
    /// Whether somebody goes by the time of birth, so that it is committed.
    pub(crate) is_used: bool,
    /// How long it may be silent, in milliseconds of processing time, until it is left out; `None`: for ever.
    pub(crate) idle_timeout: Option<i64>,
    pub(crate) watermark: Watermark,
    pub(crate) last_record_at: Option<Timestamp>,
}

impl SourceTime {
    #[inline]
    fn take(&mut self, time: Timestamp) -> Timestamp {
        self.born.as_mut().map_or(Timestamp::MIN, |born| born.take(time))
    }

    /// A batch was pushed.
    fn was_active(&mut self, now: Timestamp) -> Progress {
        self.last_record_at = Some(now);
        if let Some(born) = &self.born {
            self.watermark = Watermark { time: born.watermark(), idle: false };
        }
        self.progress()
    }

    /// Processing time has passed. Whether the source is idle is the upstream tasks' affair when there are some.
    fn pass(&mut self, now: Timestamp, state: &mut TaskState) -> Progress {
        if let Some(born) = &mut self.born {
            born.restore(state.times().floor());
            self.watermark.time = born.watermark();
        }
        if let (Some(timeout), Some(_)) = (self.idle_timeout, &self.born) {
            let since = *self.last_record_at.get_or_insert(now);
            let idle_at = since.saturating_add(timeout);
            self.watermark.idle = now >= idle_at;
            if !self.watermark.idle {
                state.times_mut().wake_at(idle_at);
            }
        }
        self.progress()
    }

    fn progress(&self) -> Progress {
        Progress { input: self.input, watermark: self.watermark }
    }
}

impl<T: Data, C: Decode<T>> Source<T, C> {
    fn takes(&self, record: &SourceRecord<'_>) -> bool {
        let Some(tags) = &self.tags else { return true };
        let tag = find_property(record.properties, "TAGS").unwrap_or_default();
        tags.iter().any(|wanted| wanted.as_bytes() == tag)
    }
}

impl<T: Data, C: Decode<T>> Ingest for Source<T, C> {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        if let Some(SourceTime { born: Some(born), is_used: true, input, watermark, .. }) = &mut self.time {
            born.restore(state.times().committed(*input));
            watermark.time = born.watermark();
        }
        self.next.open(state)
    }

    fn process(&mut self, batch: &SourceBatch<'_>, cx: &mut Context<'_>) -> Result<()> {
        cx.counters.records_in += batch.records.len() as u64;
        for (index, record) in batch.records.iter().enumerate() {
            if !self.takes(record) {
                continue;
            }
            let (origin, timestamp) = (Origin::new(index), record.timestamp);
            let value = self.guard.attempt(cx, |_| match record.body {
                Ok(body) => self.codec.decode(body),
                Err(reason) => Err(Error::record(reason)),
            });
            match value {
                Ok(value) => {
                    let watermark = self.time.as_mut().map_or(Timestamp::MIN, |time| time.take(timestamp));
                    self.decoded.push(Record { value, timestamp, watermark, origin });
                }
                Err(error) => self.guard.reject(error, origin, timestamp, cx)?,
            }
        }
        self.next.push(&mut self.decoded, cx)?;
        match &mut self.time {
            Some(time) if time.born.is_some() => self.next.advance(time.was_active(cx.now()), cx),
            _ => Ok(()),
        }
    }

    fn heard(&mut self, watermark: Watermark, cx: &mut Context<'_>) -> Result<()> {
        let Some(time) = &mut self.time else { return Ok(()) };
        time.watermark = Watermark { time: time.watermark.time.max(watermark.time), idle: watermark.idle };
        self.next.advance(time.progress(), cx)
    }

    fn tick(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let Some(time) = &mut self.time else { return Ok(()) };
        let progress = time.pass(cx.now(), cx.state);
        self.next.advance(progress, cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if let Some(SourceTime { born: Some(born), is_used: true, input, .. }) = &self.time {
            cx.state.times_mut().report(*input, born.watermark());
        }
        self.next.seal(cx)
    }
}

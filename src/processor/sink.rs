//! Encodes output.

use super::{Guard, InputClock, Push, queue_of_key};
use crate::codec::{Data, Encode, Key, Keyed, encode_key};
use crate::record::Record;
use crate::stage::Context;
use crate::state::TaskState;
use crate::time::Progress;
use onceflow_log::Properties;
use onceflow_types::{Error, Result};
use std::sync::Arc;

/// Appends the key of a value, whose hash chooses the queue.
pub(crate) type KeyBytes<T> = Arc<dyn Fn(&T, &mut Vec<u8>) -> Result<()> + Send + Sync>;
/// Chooses the queue of a value among a number of queues.
pub(crate) type SelectQueue<T> = Arc<dyn Fn(&T, u32) -> u32 + Send + Sync>;
/// Makes the value of a property; `None` leaves it out.
pub(crate) type Attribute<T> = Arc<dyn Fn(&T) -> Option<String> + Send + Sync>;

/// How a sink chooses the queue.
pub(crate) enum Route<T> {
    /// Each task has its own.
    Task,
    /// By the hash of a key.
    Key(KeyBytes<T>),
    /// By the user's function.
    Queue(SelectQueue<T>),
}

impl<T> Clone for Route<T> {
    fn clone(&self) -> Self {
        match self {
            Route::Task => Route::Task,
            Route::Key(key) => Route::Key(key.clone()),
            Route::Queue(select) => Route::Queue(select.clone()),
        }
    }
}

/// The properties of a sink's messages: name and value each.
pub(crate) type Attributes<T> = Vec<(Arc<str>, Attribute<T>)>;

/// Puts each record out as one message.
pub(crate) struct Sink<T, C> {
    guard: Guard,
    writer: Writer<T, C>,
}

struct Writer<T, C> {
    codec: Arc<C>,
    index: usize,
    route: Route<T>,
    attributes: Attributes<T>,
    key: Vec<u8>,
    properties: Properties,
}

impl<T, C> Sink<T, C> {
    pub(crate) fn new(codec: Arc<C>, index: usize, route: Route<T>, attributes: Attributes<T>, guard: Guard) -> Self {
        let (key, properties) = (Vec::new(), Properties::default());
        Sink { guard, writer: Writer { codec, index, route, attributes, key, properties } }
    }
}

impl<T: Data, C: Encode<T>> Writer<T, C> {
    fn write(&mut self, record: &Record<T>, cx: &mut Context<'_>) -> Result<()> {
        let queue = self.queue(&record.value, cx)?;
        self.properties.clear();
        for (name, value) in &self.attributes {
            if let Some(value) = value(&record.value) {
                self.properties.push(name, &value)?;
            }
        }
        let position = cx.source_position(record.origin);
        cx.output.push(self.index, queue, self.properties.as_bytes(), record.timestamp, position, |body| {
            self.codec.encode(&record.value, body)
        })
    }

    fn queue(&mut self, value: &T, cx: &Context<'_>) -> Result<u32> {
        let queues = cx.output.queues_of(self.index);
        match &self.route {
            Route::Task => Ok(cx.output.task_queue(self.index)),
            Route::Key(key_bytes) => {
                self.key.clear();
                key_bytes(value, &mut self.key)?;
                Ok(queue_of_key(&self.key, queues))
            }
            Route::Queue(select) => match select(value, queues) {
                queue if queue < queues => Ok(queue),
                queue => Err(Error::record(format!("sink has no such queue: queue={queue} queues={queues}"))),
            },
        }
    }
}

impl<T: Data, C: Encode<T>> Push<T> for Sink<T, C> {
    fn open(&mut self, _: &mut TaskState) -> Result<()> {
        Ok(())
    }

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            match self.guard.attempt(cx, |cx| self.writer.write(&record, cx)) {
                Ok(()) => cx.counters.records_out += 1,
                Err(error) => self.guard.reject(error, record.origin, record.timestamp, cx)?,
            }
        }
        Ok(())
    }

    fn advance(&mut self, _: Progress, _: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    fn seal(&mut self, _: &mut Context<'_>) -> Result<()> {
        Ok(())
    }
}

/// Puts each record out to the queue of its key, for the tasks of the next subtopology.
pub(crate) struct Repartition<K, C> {
    codec: Arc<Keyed<K, C>>,
    index: usize,
    guard: Guard,
    key: Vec<u8>,
    /// What is known of time, if there is somebody behind the topic who wants to know.
    clock: Option<InputClock>,
}

impl<K: Key, C> Repartition<K, C> {
    pub(crate) fn new(codec: Arc<Keyed<K, C>>, index: usize, guard: Guard, clock: Option<InputClock>) -> Self {
        Repartition { codec, index, guard, key: Vec::new(), clock }
    }

    fn write<T>(&mut self, record: &Record<(K, T)>, cx: &mut Context<'_>) -> Result<()>
    where
        C: Encode<T>,
    {
        let (key, value) = &record.value;
        self.key.clear();
        encode_key(key, &mut self.key)?;
        let queue = queue_of_key(&self.key, cx.output.queues_of(self.index));
        let position = cx.source_position(record.origin);
        cx.output.push(self.index, queue, &[], record.timestamp, position, |body| {
            self.codec.encode_parts(&self.key, value, body)
        })
    }
}

impl<K: Key, T: Data, C: Encode<T>> Push<(K, T)> for Repartition<K, C> {
    fn open(&mut self, _: &mut TaskState) -> Result<()> {
        Ok(())
    }

    fn push(&mut self, records: &mut Vec<Record<(K, T)>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            match self.write(&record, cx) {
                Ok(()) => cx.counters.records_out += 1,
                Err(error) => self.guard.reject(error, record.origin, record.timestamp, cx)?,
            }
        }
        Ok(())
    }

    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        if let Some(clock) = &mut self.clock {
            clock.hear(progress);
            cx.output.set_watermark(self.index, clock.watermark());
        }
        Ok(())
    }

    fn seal(&mut self, _: &mut Context<'_>) -> Result<()> {
        Ok(())
    }
}

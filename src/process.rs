//! The low-level door: a program of your own per key, with state, timers and several outputs.
//!
//! ```
//! use onceflow::codec::Json;
//! use onceflow::process::{Process, Processor, Setup, Timer, ValueState};
//! use onceflow::testing::TestDriver;
//! use onceflow::types::{Result, Timestamp};
//! use onceflow::StreamBuilder;
//! use std::time::Duration;
//!
//! /// Says which payments were not confirmed within 90 seconds.
//! #[derive(Default)]
//! struct Unconfirmed {
//!     /// When its timer is due, in milliseconds.
//!     waiting: ValueState<i64>,
//! }
//!
//! impl Processor<String, bool> for Unconfirmed {
//!     type Output = String;
//!
//!     fn open(&mut self, setup: &mut Setup<'_, String>) -> Result<()> {
//!         self.waiting = setup.value("waiting")?;
//!         Ok(())
//!     }
//!
//!     fn process(&mut self, is_confirmation: bool, cx: &mut Process<'_, String, String>) -> Result<()> {
//!         if is_confirmation {
//!             if let Some(timer) = cx.value(&self.waiting)?.get().copied() {
//!                 cx.cancel_event_timer(Timestamp::from_millis(timer))?;
//!                 cx.value(&self.waiting)?.remove();
//!             }
//!             return Ok(());
//!         }
//!         let timer = cx.time().saturating_add(90_000);
//!         cx.value(&self.waiting)?.set(timer.as_millis());
//!         cx.set_event_timer(timer)
//!     }
//!
//!     fn on_timer(&mut self, _: Timer, cx: &mut Process<'_, String, String>) -> Result<()> {
//!         cx.value(&self.waiting)?.remove();
//!         let text = format!("{} is not confirmed", cx.key());
//!         cx.emit(text);
//!         Ok(())
//!     }
//! }
//!
//! let builder = StreamBuilder::new("job")?;
//! let events = builder.source("events", Json::<(String, i64, bool)>::new()).out_of_orderness(Duration::ZERO);
//! let events = events.select_timestamp(|(_, millis, _)| Timestamp::from_millis(*millis));
//! let keyed = events.key_by(|(payment, ..)| payment.clone()).map_values(|(_, _, confirmed)| confirmed);
//! keyed.process("unconfirmed", Unconfirmed::default).values().sink("alerts", "alerts", onceflow::codec::Utf8);
//!
//! let mut driver = TestDriver::new(&builder.build()?)?;
//! for event in [r#"["p1",0,false]"#, r#"["p2",1000,false]"#, r#"["p1",50000,true]"#, r#"["p3",91000,false]"#] {
//!     driver.send("events", event.as_bytes())?;
//! }
//! driver.commit()?;
//! assert_eq!(driver.bodies("alerts"), [b"p2 is not confirmed"]);
//! # Ok::<(), onceflow::types::Error>(())
//! ```

mod context;
mod living;
mod tables;

use crate::codec::Data;
use onceflow_types::{Result, Timestamp};
use std::fmt;
use std::marker::PhantomData;

pub(crate) use context::{KeyTimers, Lent, forget};
pub use context::{Process, Setup};
pub(crate) use living::Now;
pub use tables::{ListEntry, MapEntry};
pub(crate) use tables::{Side, SideBuffer, Sides, Tables};

/// A program of your own over a keyed stream. Each task has one, which works on the keys of its queue.
///
/// # Contract
/// 1. `open` is called once, before anything else, and names the state.
/// 2. `process` gets every record of its keys, in order for each. What it does goes through its context: state, timers and
///    output are committed together, or not at all. What it does elsewhere happens again when an epoch is tried again.
/// 3. `on_timer` is called once for each timer that comes due and is still set, for its key. Event-time timers come in the
///    order of their times, before any record that came after event time reached them.
/// 4. Fields of its own are gone with the task: what is to last lies in state.
/// 5. An error of kind `Record` goes to the error policy. Output of that call is dropped; changes of state and timers stay, so
///    fail before you change anything.
pub trait Processor<K, T>: Send + 'static {
    /// What its stream holds.
    type Output: Data;

    /// Names the state.
    ///
    /// # Errors
    /// Those of [`Setup`].
    fn open(&mut self, setup: &mut Setup<'_, K>) -> Result<()> {
        let _ = setup;
        Ok(())
    }

    /// A record of the key that the context names.
    ///
    /// # Errors
    /// `Record` when it cannot be worked on; those of the context.
    fn process(&mut self, value: T, cx: &mut Process<'_, K, Self::Output>) -> Result<()>;

    /// A timer of the key that the context names is due.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    fn on_timer(&mut self, timer: Timer, cx: &mut Process<'_, K, Self::Output>) -> Result<()> {
        let _ = (timer, cx);
        Ok(())
    }
}

/// A timer that came due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// By event time.
    Event(Timestamp),
    /// By processing time.
    Processing(Timestamp),
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident<$($of:ident),+>) => {
        $(#[$doc])*
        pub struct $name<$($of),+> {
            pub(crate) at: usize,
            of: PhantomData<fn() -> ($($of,)+)>,
        }

        impl<$($of),+> $name<$($of),+> {
            pub(crate) fn new(at: usize) -> Self {
                $name { at, of: PhantomData }
            }
        }

        /// One that is not named yet; using it is an error of kind `Bug`.
        impl<$($of),+> Default for $name<$($of),+> {
            fn default() -> Self {
                $name::new(usize::MAX)
            }
        }

        impl<$($of),+> fmt::Debug for $name<$($of),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.at).finish()
            }
        }
    };
}

handle!(
    /// One value for each key; made by [`Setup::value`].
    ValueState<V>
);
handle!(
    /// A list for each key; made by [`Setup::list`].
    ListState<V>
);
handle!(
    /// A map for each key; made by [`Setup::map`].
    MapState<M, V>
);

/// Another output of a processor than its stream. The number tells the outputs of one processor apart.
///
/// ```
/// # use onceflow::process::{Process, Processor, SideOutput};
/// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver, types::Result};
/// const NEGATIVE: SideOutput<String> = SideOutput::new(1);
///
/// struct Parted;
/// impl Processor<u8, i64> for Parted {
///     type Output = i64;
///     fn process(&mut self, number: i64, cx: &mut Process<'_, u8, i64>) -> Result<()> {
///         if number < 0 {
///             return cx.emit_to(&NEGATIVE, format!("{number} is negative"));
///         }
///         cx.emit(number);
///         Ok(())
///     }
/// }
///
/// let builder = StreamBuilder::new("job")?;
/// let parted = builder.source("in", Json::<i64>::new()).key_by(|_| 0u8).process("parted", || Parted);
/// parted.values().sink("rest", "rest", Json::new());
/// parted.side(&NEGATIVE).values().sink("negative", "negative", Json::new());
/// let mut driver = TestDriver::new(&builder.build()?)?;
/// driver.send("in", b"5")?;
/// driver.send("in", b"-5")?;
/// driver.commit()?;
/// assert_eq!(driver.bodies("rest"), [b"5"]);
/// assert_eq!(driver.bodies("negative"), [br#""-5 is negative""#]);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct SideOutput<U> {
    pub(crate) port: u32,
    of: PhantomData<fn() -> U>,
}

impl<U> SideOutput<U> {
    /// The output of this number, counted from 1.
    ///
    /// # Panics
    /// For number 0, which is the stream itself.
    pub const fn new(number: u32) -> Self {
        assert!(number > 0, "output 0 is the stream itself");
        SideOutput { port: number, of: PhantomData }
    }
}

impl<U> fmt::Debug for SideOutput<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SideOutput").field(&self.port).finish()
    }
}

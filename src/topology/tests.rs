//! Programs through the test driver.

mod aging;
mod describe;
mod errors;
mod evolution;
mod keyed;
mod living;
mod names;
mod operators;
mod state;

use super::{StreamBuilder, Topology};
use crate::codec::{Decode, Encode};
use crate::testing::{CrashPoint, TestDriver};
use onceflow_types::{Error, Result};

/// A codec of the tests: numbers as text.
#[derive(Clone, Copy)]
struct Number;

impl Decode<i64> for Number {
    fn decode(&self, bytes: &[u8]) -> Result<i64> {
        let text = std::str::from_utf8(bytes).map_err(|e| Error::record("not text").with_source(e))?;
        text.parse().map_err(|e| Error::record(format!("not a number: given={text:?}")).with_source(e))
    }
}

impl Encode<i64> for Number {
    fn encode(&self, value: &i64, to: &mut Vec<u8>) -> Result<()> {
        to.extend_from_slice(value.to_string().as_bytes());
        Ok(())
    }
}

fn program(write: impl FnOnce(&StreamBuilder)) -> Result<Topology> {
    let builder = StreamBuilder::new("job")?;
    write(&builder);
    builder.build()
}

fn driver(write: impl FnOnce(&StreamBuilder)) -> TestDriver {
    TestDriver::new(&program(write).unwrap()).unwrap()
}

fn send(driver: &mut TestDriver, topic: &str, numbers: impl IntoIterator<Item = i64>) {
    for number in numbers {
        driver.send(topic, number.to_string().as_bytes()).unwrap();
    }
}

/// A key and an event time, as JSON.
type Event = (u32, i64);

fn send_event(driver: &mut TestDriver, event: Event) {
    driver.send("in", &serde_json::to_vec(&event).unwrap()).unwrap();
}

/// Sends events in pieces of the lengths of `cuts`; behind each of them what its number says: a batch, a crash, a crash at one
/// of the steps, or an epoch. What is left then is not sent. All ends with an epoch.
fn send_in_pieces(driver: &mut TestDriver, mut events: &[Event], cuts: impl IntoIterator<Item = (usize, usize)>) {
    for (length, then) in cuts {
        let (now, later) = events.split_at(length.min(events.len()));
        for event in now {
            send_event(driver, *event);
        }
        events = later;
        match then {
            0 => driver.process().unwrap(),
            1 => driver.abort().unwrap(),
            at @ 2..10 => {
                driver.crash_at(CrashPoint::ALL[at - 2]).unwrap();
            }
            _ => driver.commit().unwrap(),
        }
    }
    driver.commit().unwrap();
}

fn texts(driver: &TestDriver, topic: &str) -> Vec<String> {
    driver.bodies(topic).into_iter().map(|body| String::from_utf8(body).unwrap()).collect()
}

//! The log as one process sees it: requests travel to the model brokers and back, and may be lost, late, doubled or cut off.

use crate::broker::{Broker, Check, Half, Reading, Stored};
use crate::fault::Fault;
use crate::message::{Fields, fields_of};
use crate::plant::Plant;
use crate::trip::Trip;
use crate::world::{ClientId, Net, World};
use async_trait::async_trait;
use onceflow::log::{
    Acked, CheckBack, End, Link, Log, MemberId, MessageBatch, OffsetRange, Prepared, Queues, ReadLimit, RecordBatch,
    Ticket, TopicSpec, Verdict,
};
use onceflow::types::{Error, HalfHandle, Offset, Offsets, Partition, Result, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// How long a caller waits for a reply: the client's own default.
pub(crate) const DEADLINE: Duration = Duration::from_secs(3);
/// How soon a caller knows that a broker does not listen.
const REFUSED_AFTER: Duration = Duration::from_millis(20);
/// What one message may be.
const MESSAGE_BYTES_MAX: usize = (4 << 20) - (64 << 10);

/// A process's log.
#[derive(Debug)]
pub(crate) struct SimLog {
    net: Net,
    client: ClientId,
    group: Arc<str>,
    checks: Mutex<mpsc::UnboundedReceiver<Check>>,
}

/// Where a request goes, and over which connection if that matters: what is sent over one reaches no other life of the
/// broker, however late it is.
#[derive(Clone, Copy, Debug)]
struct Way<'b> {
    broker: &'b Arc<str>,
    over: Option<u64>,
}

impl<'b> Way<'b> {
    const fn to(broker: &'b Arc<str>) -> Self {
        Way { broker, over: None }
    }
}

/// What kind of request it is: what may happen to it follows from that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It changes nothing.
    Look,
    /// It changes something, and its success promises nothing about the disk: END.
    Change,
    /// It stores something, and its success means that it is kept: SEND_OK.
    Store,
}

impl SimLog {
    pub(crate) fn open(net: &Net, client: ClientId, group: &str) -> Self {
        let group: Arc<str> = group.into();
        let checks = net.lock().join(client, group.clone());
        SimLog { net: net.clone(), client, group, checks: Mutex::new(checks) }
    }

    /// One request to a broker. What `carry_out` does there happens, or not, or twice, whatever becomes of the caller.
    async fn request<T, F>(&self, way: Way<'_>, kind: Kind, carry_out: F) -> Result<(T, Link)>
    where
        T: Send + 'static,
        F: Fn(&mut World) -> Result<T> + Send + Sync + 'static,
    {
        let (sent, broker, bound) = (Instant::now(), way.broker, way.over.is_some());
        let Some((trip, connection)) = self.set_out(way, kind) else {
            sleep(REFUSED_AFTER).await;
            return Err(Error::retry(format!("broker cannot be reached: broker={broker}")));
        };
        let (answer, answered) = oneshot::channel();
        let carry_out = Arc::new(carry_out);
        if let Some(after) = trip.again {
            let (broker, carry_out) = (broker.clone(), carry_out.clone());
            let life = bound.then_some(trip.life);
            self.net.at(sent + after, move |world| drop(arrive(world, &broker, life, &*carry_out)));
        }
        if let Some(after) = trip.there {
            let name = broker.clone();
            let life = (bound || !trip.late).then_some(trip.life);
            let action = move |world: &mut World| {
                let result = arrive(world, &name, life, &*carry_out);
                let Some(result) = result else { return };
                if trip.kept && kind == Kind::Store && result.is_ok() {
                    world.brokers.get_mut(&name).into_iter().for_each(Broker::acknowledge);
                }
                // Nobody may wait any more.
                let _ = answer.send(result);
            };
            self.net.at(sent + after, action);
        }
        let Ok(Ok(result)) = timeout_at(sent + DEADLINE, answered).await else {
            sleep_until(sent + trip.error_after).await;
            return Err(Error::retry(format!("no reply: broker={broker}")));
        };
        sleep(trip.back).await;
        let open = self.net.lock().is_open(self.client, broker, connection);
        match (open && trip.answered, trip.weak) {
            (false, _) => Err(Error::retry(format!("connection lost: broker={broker}"))),
            (true, true) if !self.net.has(Plant::WeakStatusIsOk) => {
                Err(Error::retry(format!("weak status: broker={broker}")))
            }
            (true, _) => {
                let connection = if self.net.has(Plant::OneConnection) { 1 } else { connection };
                result.map(|result| (result, Link::new(broker.clone(), connection)))
            }
        }
    }

    fn set_out(&self, Way { broker, over }: Way<'_>, kind: Kind) -> Option<(Trip, u64)> {
        let mut world = self.net.lock();
        world.counts.calls += 1;
        let connection = match over {
            None => world.connection(self.client, broker)?,
            Some(_) if matches!(world.plant, Some(Plant::AnyConnection | Plant::OneConnection)) => {
                world.connection(self.client, broker)?
            }
            Some(connection) => world.has_connection(self.client, broker, connection).then_some(connection)?,
        };
        let cut = world.cut.contains(&(self.client, broker.clone()));
        let life = world.brokers.get(broker)?.life;
        let trip = Trip::plan(&mut world, kind, life, cut);
        if trip.reset {
            world.reset(self.client, broker);
        }
        Some((trip, connection))
    }

    /// Topics are looked up at the name server. What it does not know because a broker is away is asked for again, as
    /// `Log` promises: a topic is missing only when its brokers say so.
    async fn look_up<T>(&self, look: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        sleep(Duration::from_millis(1)).await;
        let mut world = self.net.lock();
        world.counts.calls += 1;
        let rate = world.rates.of(Fault::RequestLost) + world.rates.of(Fault::ReplyLost);
        if world.name_server_back > Instant::now() || world.dice.happens(rate) {
            return Err(Error::retry("no reply from the name server"));
        }
        if world.rates.of(Fault::Route) > 0 && world.brokers.values().any(|broker| !broker.up) {
            world.counts.fault(Fault::Route);
            return Err(Error::retry("the name server does not know a broker that is away"));
        }
        look(&mut world)
    }

    /// Waits until `from` can be read, at most `wait_max`; returns what there is.
    async fn wait_for(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<(Vec<Stored>, Offset)> {
        let until = Instant::now() + limit.wait_max;
        loop {
            let (changed, shown_at) = match self.read_now(partition, from, limit)? {
                Reading::Records { records, next } => return Ok((records, Offset::new(next))),
                Reading::NoQueue => return Err(no_queue(partition)),
                Reading::Outside { first, next } => {
                    return Err(Error::data_loss(format!(
                        "offset is not readable: partition={partition} given={from} first={first} next={next}"
                    )));
                }
                Reading::Nothing(changed, shown_at) => (changed, shown_at),
            };
            if Instant::now() >= until {
                return Ok((vec![], from));
            }
            tokio::select! {
                biased;
                () = changed.notified() => {}
                () = sleep_until(shown_at.unwrap_or(until).min(until)) => {}
            }
        }
    }

    fn read_now(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<Reading> {
        let world = self.net.lock();
        let cut = world.cut.contains(&(self.client, partition.broker.clone()));
        match world.brokers.get(&partition.broker) {
            None => Err(no_queue(partition)),
            Some(broker) if !broker.up || cut => Err(Error::retry(format!("broker is away: broker={}", broker.name))),
            Some(broker) => Ok(broker.read(partition, from.get(), limit.records_max, limit.bytes_max)),
        }
    }

    async fn append_by(&self, way: Way<'_>, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        check_size(batch)?;
        let (to, batch) = (partition.clone(), batch.clone());
        let store = move |world: &mut World| {
            let (time, lag) = (world.time(), world.lag());
            broker_of(world, &to)?;
            let mut first = None;
            for message in batch.iter() {
                let broker = broker_of(world, &to)?;
                let Fields { properties, .. } = fields_of(message, || broker.unique_key());
                let body = bytes::Bytes::copy_from_slice(message.body);
                let offset = broker.append(&to, Stored { born: time, at: time, properties, body }, lag);
                first.get_or_insert(offset);
            }
            let first = first.unwrap_or_default();
            world.note("append", &[to.queue.into(), first, batch.len() as u64, batch.as_bytes().len() as u64]);
            Ok(Offset::new(first))
        };
        let (first, link) = self.request(way, Kind::Store, store).await?;
        Ok(Acked { first, link })
    }
}

impl Drop for SimLog {
    fn drop(&mut self) {
        self.net.lock().leave(self.client);
    }
}

/// A request reaches its broker, which runs, and still is the one that it was sent to where that matters.
fn arrive<T>(
    world: &mut World,
    broker: &Arc<str>,
    life: Option<u64>,
    carry_out: &dyn Fn(&mut World) -> Result<T>,
) -> Option<Result<T>> {
    let found = world.brokers.get(broker)?;
    let reached = found.up && life.is_none_or(|life| life == found.life);
    reached.then(|| carry_out(world))
}

fn no_queue(partition: &Partition) -> Error {
    Error::invalid(format!("no such partition: {partition}"))
}

fn broker_of<'w>(world: &'w mut World, partition: &Partition) -> Result<&'w mut Broker> {
    let broker = world.brokers.get_mut(&partition.broker).filter(|broker| broker.has(partition));
    broker.ok_or_else(|| no_queue(partition))
}

/// The broker's name for messages of a batch, checked against the limit.
fn check_size(batch: &MessageBatch) -> Result<()> {
    if batch.is_empty() {
        return Err(Error::invalid("an empty batch"));
    }
    if batch.largest_bytes() > MESSAGE_BYTES_MAX {
        let bytes = batch.largest_bytes();
        return Err(Error::invalid(format!("message is too large: bytes={bytes} max={MESSAGE_BYTES_MAX}")));
    }
    Ok(())
}

#[async_trait]
impl Log for SimLog {
    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<()> {
        self.look_up(|world| {
            let counts = queue_counts(world, &spec.queues)?;
            for (broker, count) in counts {
                if let Some(broker) = world.brokers.get_mut(&broker) {
                    broker.add_queues(&spec.topic, count);
                }
            }
            Ok(())
        })
        .await
    }

    async fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        self.look_up(|world| {
            let queues = world.brokers.values().flat_map(|broker| {
                broker.queues_of(topic).into_iter().map(|queue| Partition::new(topic, broker.name.clone(), queue))
            });
            let queues: Vec<Partition> = queues.collect();
            if queues.is_empty() { Err(Error::invalid(format!("no such topic: {topic}"))) } else { Ok(queues) }
        })
        .await
    }

    async fn offsets(&self, partition: &Partition) -> Result<OffsetRange> {
        let asked = partition.clone();
        let look = move |world: &mut World| {
            let (first, next) =
                broker_of(world, &asked)?.range(&asked, Instant::now()).ok_or_else(|| no_queue(&asked))?;
            Ok(OffsetRange { first: Offset::new(first), next: Offset::new(next) })
        };
        self.request(Way::to(&partition.broker), Kind::Look, look).await.map(|(range, _)| range)
    }

    async fn offset_at(&self, partition: &Partition, time: Timestamp) -> Result<Offset> {
        let asked = partition.clone();
        let look = move |world: &mut World| Ok(Offset::new(broker_of(world, &asked)?.offset_at(&asked, time)));
        self.request(Way::to(&partition.broker), Kind::Look, look).await.map(|(offset, _)| offset)
    }

    async fn read(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
        limit.check()?;
        let broker = &partition.broker;
        self.request(Way::to(broker), Kind::Look, |_| Ok(())).await?;
        let (records, end) = self.wait_for(partition, from, limit).await?;
        // The answer travels back, and meets what requests meet.
        self.request(Way::to(broker), Kind::Look, |_| Ok(())).await?;
        Ok(crate::message::batch(partition, from, &records).with_end(end))
    }

    async fn append(&self, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        self.append_by(Way::to(&partition.broker), partition, batch).await
    }

    async fn append_over(&self, link: &Link, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        let way = Way { broker: &partition.broker, over: Some(link.connection) };
        self.append_by(way, partition, batch).await
    }

    fn is_open(&self, link: &Link) -> bool {
        let world = self.net.lock();
        let any = matches!(world.plant, Some(Plant::AnyConnection | Plant::OneConnection));
        any || world.has_connection(self.client, &link.broker, link.connection)
    }

    async fn prepare(&self, target: &Partition, batch: &MessageBatch) -> Result<Prepared> {
        check_size(batch)?;
        let (to, batch, group) = (target.clone(), batch.clone(), self.group.clone());
        let store = move |world: &mut World| {
            let time = world.time();
            let broker = broker_of(world, &to)?;
            let Some(message) = batch.iter().next() else { return Err(Error::invalid("an empty batch")) };
            let Fields { properties, unique_key } = fields_of(message, || broker.unique_key());
            let body = bytes::Bytes::copy_from_slice(message.body);
            let message = Stored { born: time, at: time, properties, body };
            let half = Half { target: to.clone(), group: group.clone(), unique_key: unique_key.clone(), message };
            let (commit_log_offset, half_queue_offset) = broker.prepare(half);
            world.note("prepare", &[to.queue.into(), commit_log_offset]);
            Ok(HalfHandle { target: to.clone(), commit_log_offset, half_queue_offset, unique_key })
        };
        let (handle, link) = self.request(Way::to(&target.broker), Kind::Store, store).await?;
        Ok(Prepared { handle, link })
    }

    async fn end(&self, handle: &HalfHandle, end: End) -> Result<Link> {
        let (given, group) = (handle.clone(), self.group.clone());
        let change = move |world: &mut World| {
            let lag = world.lag();
            world.note("end", &[u64::from(end == End::Commit), given.commit_log_offset]);
            let World { brokers, dice, .. } = world;
            let broker = brokers.get_mut(&given.target.broker).ok_or_else(|| no_queue(&given.target))?;
            let Some((first, half)) = broker.half_at(given.commit_log_offset) else {
                return Err(Error::data_loss(format!("no half message here: offset={}", given.commit_log_offset)));
            };
            if half.group != group {
                return Err(Error::invalid(format!("the producer group is wrong: given={group} half={}", half.group)));
            }
            if half.unique_key != given.unique_key {
                return Err(Error::data_loss(format!("another half message here: offset={}", given.commit_log_offset)));
            }
            broker.end_half(first, end == End::Commit, dice, lag);
            Ok(())
        };
        let ended = self.request(Way::to(&handle.target.broker), Kind::Change, change).await;
        if ended.is_err() && self.net.has(Plant::UnansweredEndIsDone) {
            return Ok(Link::new(handle.target.broker.clone(), u64::MAX));
        }
        ended.map(|((), link)| link)
    }

    async fn next_check_back(&self) -> Result<CheckBack> {
        match self.checks.lock().await.recv().await {
            Some(Check { half, place, half_queue_offset }) => Ok(CheckBack {
                unique_key: half.unique_key.clone(),
                properties: half.message.properties,
                ticket: Ticket {
                    target: half.target,
                    commit_log_offset: place,
                    half_queue_offset,
                    transaction_id: half.unique_key.to_string(),
                },
            }),
            None => std::future::pending().await,
        }
    }

    async fn answer_check_back(&self, check: &CheckBack, verdict: Verdict) -> Result<()> {
        let commits = self.net.has(Plant::CheckBackCommits);
        if verdict == Verdict::Unknown && !commits {
            return Ok(());
        }
        let handle = HalfHandle {
            target: check.ticket.target.clone(),
            commit_log_offset: check.ticket.commit_log_offset,
            half_queue_offset: check.ticket.half_queue_offset,
            unique_key: check.unique_key.clone(),
        };
        self.end(&handle, if commits { End::Commit } else { End::Rollback }).await.map(drop)
    }

    async fn members(&self, group: &str, own: &MemberId) -> Result<BTreeSet<MemberId>> {
        let members = self.look_up(|world| Ok(world.sign_of_life(self.client, group, own))).await?;
        members.ok_or_else(|| Error::retry("no broker can be reached"))
    }

    async fn leave(&self, group: &str, own: &MemberId) -> Result<()> {
        self.look_up(|world| {
            world.leave_group(group, own);
            Ok(())
        })
        .await
    }

    async fn report_offsets(&self, _group: &str, _offsets: &Offsets) -> Result<()> {
        Ok(())
    }
}

/// How many queues each broker gets.
fn queue_counts(world: &World, queues: &Queues) -> Result<BTreeMap<Arc<str>, u32>> {
    let count = |broker: &Broker| match queues {
        Queues::PerBroker(count) => *count,
        Queues::SameAs(other) => u32::try_from(broker.queues_of(other).len()).unwrap_or(u32::MAX),
    };
    let counts: BTreeMap<Arc<str>, u32> =
        world.brokers.iter().map(|(name, broker)| (name.clone(), count(broker))).collect();
    match queues {
        Queues::SameAs(other) if counts.values().all(|count| *count == 0) => {
            Err(Error::invalid(format!("no such topic: {other}")))
        }
        _ => Ok(counts),
    }
}

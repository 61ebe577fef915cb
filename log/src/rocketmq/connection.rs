//! One TCP connection to a broker, with many requests in flight.
//!
//! One task owns the socket. It writes what callers queue, and hands each reply to the caller whose `opaque` it carries.
//! Callers wait with a deadline of their own; a caller that goes away (time-out, dropped future) takes its entry along,
//! and its late reply is counted and dropped. When the connection ends for any reason, every waiting caller gets `Retry`.

use super::check_back::Asked;
use super::code::{GO_AWAY, Request};
use super::frame::{Fields, encode};
use super::options::RocketOptions;
use super::secure::{Security, Stream};
use super::waiting::Waiting;
use crate::remoting::{Reply, RocketCounters, split_frame};
use bytes::BytesMut;
use onceflow_types::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

/// Least free room in the read buffer, in bytes.
const READ_BYTES_MIN: usize = 64 << 10;
/// Frames are gathered up to this size before they are written.
const WRITE_BYTES_GATHERED: usize = 128 << 10;
/// Most frames taken from the queue at once.
const WRITE_FRAMES_MAX: usize = 256;
/// One permit of the byte budget, in bytes.
const BUDGET_UNIT_BYTES: usize = 1024;

/// Numbers connections over the whole process, so that two handles never give the same number to different ones.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// See the module.
pub(super) struct Connection {
    /// Grows with each connection of this process.
    pub(super) number: u64,
    options: Arc<RocketOptions>,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    opaque: AtomicI32,
    places: Semaphore,
    budget: Semaphore,
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Waiting<Reply>,
    /// Frames read so far.
    received: AtomicU64,
    /// Set when the broker says good-bye: what is in flight may finish, nothing new is sent.
    leaving: AtomicBool,
    close: Notify,
    /// The broker at the other end, and who takes its questions in.
    broker: Arc<str>,
    asked: Asked,
    counters: Arc<RocketCounters>,
}

impl Connection {
    /// Opens a connection. Must be called on the runtime that is to own it.
    pub(super) async fn open(
        address: &str,
        options: Arc<RocketOptions>,
        security: &Security,
        (broker, asked): (Arc<str>, Asked),
        counters: Arc<RocketCounters>,
    ) -> Result<Arc<Connection>> {
        let connecting = timeout(options.connect_timeout, TcpStream::connect(address)).await;
        let unreachable = || Error::retry(format!("broker cannot be reached: address={address}"));
        let stream = match connecting {
            Ok(stream) => stream.map_err(|error| unreachable().with_source(error))?,
            Err(_) => return Err(unreachable().context("connect timed out")),
        };
        stream.set_nodelay(true).map_err(|error| unreachable().with_source(error))?;
        let Ok(secured) = timeout(options.connect_timeout, security.secure(address, stream)).await else {
            return Err(unreachable().context("TLS handshake timed out"));
        };
        let stream = secured?;
        RocketCounters::add(&counters.connections_opened);
        let shared = Arc::new(Shared {
            waiting: Waiting::new(),
            received: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
            close: Notify::new(),
            broker,
            asked,
            counters,
        });
        let (outgoing, queue) = mpsc::unbounded_channel();
        let bytes_max = options.frame_bytes_max;
        match stream {
            Stream::Plain(stream) => {
                let (reader, writer) = stream.into_split();
                tokio::spawn(run(reader, writer, queue, shared.clone(), bytes_max));
            }
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => {
                let (reader, writer) = tokio::io::split(*stream);
                tokio::spawn(run(reader, writer, queue, shared.clone(), bytes_max));
            }
        }
        Ok(Arc::new(Connection {
            number: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
            outgoing,
            opaque: AtomicI32::new(0),
            places: Semaphore::new(options.in_flight_max),
            budget: Semaphore::new(budget_units(options.in_flight_bytes_max)),
            shared,
            options,
        }))
    }

    /// Whether new requests can be sent.
    pub(super) fn is_open(&self) -> bool {
        !self.shared.leaving.load(Ordering::Acquire) && self.shared.waiting.is_open()
    }

    /// Ends the connection; whoever waits gets `Retry`.
    pub(super) fn close(&self) {
        self.shared.waiting.end();
        self.shared.close.notify_one();
    }

    /// Sends one request and waits for its reply until `deadline`. `Retry` says that the outcome is unknown.
    pub(super) async fn call(
        &self,
        request: Request,
        fields: Fields<'_>,
        body: &[u8],
        deadline: Instant,
    ) -> Result<Reply> {
        let units = budget_units(body.len()).min(budget_units(self.options.in_flight_bytes_max));
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let places = async { (self.places.acquire().await, self.budget.acquire_many(units).await) };
        let Ok((Ok(_place), Ok(_bytes))) = timeout_at(deadline, places).await else {
            return Err(Error::retry(format!("too many requests in flight: max={}", self.options.in_flight_max)));
        };
        let opaque = self.opaque.fetch_add(1, Ordering::Relaxed);
        let frame = encode(request, opaque, fields, body, self.options.credentials.as_ref())?;
        let received_before = self.shared.received.load(Ordering::Relaxed);
        let mut wait = self.shared.waiting.begin(opaque).ok_or_else(lost)?;
        self.outgoing.send(frame).map_err(|_| lost())?;
        match timeout_at(deadline, wait.reply()).await {
            Ok(reply) => reply.ok_or_else(lost),
            Err(_) => Err(self.timed_out(request, received_before)),
        }
    }

    /// A connection that carried nothing at all while a request timed out may be half-open; a new one is better.
    fn timed_out(&self, request: Request, received_before: u64) -> Error {
        if self.shared.received.load(Ordering::Relaxed) == received_before {
            self.close();
        }
        Error::retry(format!("broker did not answer in time: request={request:?}"))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

fn lost() -> Error {
    Error::retry("connection to the broker was lost")
}

fn budget_units(bytes: usize) -> usize {
    bytes.div_ceil(BUDGET_UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS)
}

impl Shared {
    fn deliver(&self, reply: Reply) {
        self.received.fetch_add(1, Ordering::Relaxed);
        if !reply.is_reply() {
            if self.asked.take(&self.broker, &reply) {
                return;
            }
            tracing::debug!(code = reply.code, "request of a broker skipped");
            return RocketCounters::add(&self.counters.unasked_frames);
        }
        if reply.code == GO_AWAY {
            self.leaving.store(true, Ordering::Release);
        }
        if !self.waiting.deliver(reply.opaque, reply) {
            RocketCounters::add(&self.counters.late_replies);
        }
    }
}

async fn run(
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
    queue: mpsc::UnboundedReceiver<Vec<u8>>,
    shared: Arc<Shared>,
    frame_bytes_max: usize,
) {
    let ended = tokio::select! {
        ended = read(reader, &shared, frame_bytes_max) => ended,
        ended = write(writer, queue) => ended,
        () = shared.close.notified() => Ok(()),
    };
    shared.waiting.end();
    if let Err(error) = ended {
        tracing::debug!(error = error.report(), "connection to a broker ended");
    }
}

async fn read(mut from: impl AsyncRead + Unpin, shared: &Shared, frame_bytes_max: usize) -> Result<()> {
    let mut buffer = BytesMut::with_capacity(READ_BYTES_MIN);
    loop {
        let needed = match split_frame(&mut buffer, frame_bytes_max) {
            Ok(Ok(frame)) => {
                let reply = Reply::parse(&frame, &shared.counters).inspect_err(|_| shared.counted_bad())?;
                shared.deliver(reply);
                continue;
            }
            Ok(Err(needed)) => needed,
            Err(error) => {
                shared.counted_bad();
                return Err(error);
            }
        };
        buffer.reserve(needed.saturating_sub(buffer.len()).max(READ_BYTES_MIN));
        let read = from.read_buf(&mut buffer).await.map_err(|error| lost().with_source(error))?;
        if read == 0 {
            return Err(Error::retry("broker closed the connection"));
        }
    }
}

impl Shared {
    fn counted_bad(&self) {
        RocketCounters::add(&self.counters.bad_frames);
    }
}

async fn write(mut to: impl AsyncWrite + Unpin, mut queue: mpsc::UnboundedReceiver<Vec<u8>>) -> Result<()> {
    let mut frames = Vec::with_capacity(WRITE_FRAMES_MAX);
    let mut gathered = Vec::with_capacity(WRITE_BYTES_GATHERED);
    while queue.recv_many(&mut frames, WRITE_FRAMES_MAX).await > 0 {
        for frame in frames.drain(..) {
            if gathered.len() + frame.len() > WRITE_BYTES_GATHERED {
                flush(&mut to, &mut gathered).await?;
            }
            if frame.len() >= WRITE_BYTES_GATHERED {
                to.write_all(&frame).await.map_err(|error| lost().with_source(error))?;
            } else {
                gathered.extend_from_slice(&frame);
            }
        }
        flush(&mut to, &mut gathered).await?;
        // TLS may keep a record back until it is told that no more comes.
        to.flush().await.map_err(|error| lost().with_source(error))?;
    }
    Ok(())
}

async fn flush(to: &mut (impl AsyncWrite + Unpin), gathered: &mut Vec<u8>) -> Result<()> {
    let written = to.write_all(gathered).await;
    gathered.clear();
    written.map_err(|error| lost().with_source(error))
}

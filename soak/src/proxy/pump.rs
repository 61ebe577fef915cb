//! One direction of one connection.

use super::{Fault, Rewrite};
use crate::dice::Dice;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::sleep;

const PIECE_BYTES_MAX: usize = 64 << 10;
/// Largest piece while [`Fault::Slices`] lasts.
const SLICE_BYTES_MAX: u64 = 100;

/// How the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// One side closed it.
    Closed,
    /// The proxy does, with an RST.
    Reset,
}

/// What a direction needs beside its two ends.
pub(super) struct Line {
    /// Towards the server.
    pub(super) up: bool,
    pub(super) fault: watch::Receiver<Fault>,
    pub(super) dice: Dice,
}

/// Passes bytes on until one side closes or a fault ends the connection. Drops in the middle lose what was on its way,
/// as a network does.
pub(super) async fn pump(
    mut line: Line,
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    mut copy: Option<OwnedWriteHalf>,
    rewrite: Option<&Rewrite>,
) -> End {
    let mut buffer = vec![0; PIECE_BYTES_MAX];
    let mut frames = Vec::new();
    let mut room: Option<u64> = None;
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            changed = line.fault.changed() => {
                match *line.fault.borrow_and_update() {
                    Fault::Reset | Fault::Duplicate => return End::Reset,
                    Fault::Cut { bytes_max } => room = Some(line.dice.between(0, bytes_max)),
                    _ => room = None,
                }
                // The copy ends with the fault that made it.
                copy = None;
                if changed.is_err() {
                    return End::Closed;
                }
                continue;
            }
        };
        let Ok(bytes @ 1..) = read else { return End::Closed };
        let piece = buffer.get(..bytes).unwrap_or_default();
        let piece = match rewrite {
            None => piece,
            Some(rewrite) => {
                frames.extend_from_slice(piece);
                &rewrite.whole_frames(&mut frames)
            }
        };
        if !line.hold().await {
            return End::Reset;
        }
        let passed = room.map_or(piece.len(), |room| piece.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        if let Some(copy) = &mut copy {
            // Its own failure is none of the connection's.
            let _ = copy.write_all(piece).await;
        }
        if line.write(to, piece.get(..passed).unwrap_or_default()).await.is_err() {
            return End::Closed;
        }
        if passed < piece.len() {
            return End::Reset;
        }
        room = room.map(|room| room.saturating_sub(passed as u64));
    }
}

impl Line {
    fn now(&self) -> Fault {
        *self.fault.borrow()
    }

    /// Keeps a piece back as the present fault wants it; says whether the connection survives.
    async fn hold(&mut self) -> bool {
        match self.now() {
            Fault::Latency { ms_max } => sleep(Duration::from_millis(self.dice.between(0, ms_max))).await,
            Fault::OneWay { ms, up } if up == self.up => sleep(Duration::from_millis(ms)).await,
            Fault::BlackHole => {
                while self.now() == Fault::BlackHole {
                    if self.fault.changed().await.is_err() {
                        return false;
                    }
                }
                return self.dice.percent(50);
            }
            _ => {}
        }
        true
    }

    async fn write(&mut self, to: &mut OwnedWriteHalf, mut piece: &[u8]) -> std::io::Result<()> {
        while self.now() == Fault::Slices && !piece.is_empty() {
            let bytes = usize::try_from(self.dice.between(1, SLICE_BYTES_MAX)).unwrap_or(1).min(piece.len());
            let (slice, rest) = piece.split_at(bytes);
            to.write_all(slice).await?;
            tokio::task::yield_now().await;
            piece = rest;
        }
        to.write_all(piece).await
    }
}

//! A TCP proxy on loopback that misbehaves as networks do. Processors reach the broker and the name server through one
//! each; the name server's answers are rewritten on the way, so that they name the broker's proxy as the broker.

mod fault;
mod pump;
mod rewrite;

pub(crate) use fault::Fault;
pub(crate) use rewrite::Rewrite;

use crate::dice::Dice;
use onceflow::types::{Error, Result};
use pump::{End, Line, pump};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A running proxy; it ends with the program.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
}

struct Shared {
    target: SocketAddr,
    rewrite: Option<Rewrite>,
    fault: watch::Receiver<Fault>,
    seed: u64,
    connections: AtomicU64,
}

impl Proxy {
    /// Starts to pass connections on to `target`.
    pub(crate) async fn start(target: SocketAddr, rewrite: Option<Rewrite>, seed: u64) -> Result<Proxy> {
        let failed = |error| Error::invalid("cannot start a proxy").with_source(error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (sender, fault) = watch::channel(Fault::None);
        let shared = Arc::new(Shared { target, rewrite, fault, seed, connections: AtomicU64::new(0) });
        tokio::spawn(async move {
            loop {
                // A connection that cannot be accepted is one more network fault.
                if let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(connection(client, shared.clone()));
                }
            }
        });
        Ok(Proxy { address, fault: sender })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Misbehaves like this from now on, towards open and new connections.
    pub(crate) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

async fn connection(client: TcpStream, shared: Arc<Shared>) {
    let mut fault = shared.fault.clone();
    let now = *fault.borrow_and_update();
    if now == Fault::Reset {
        return reset(&client);
    }
    if now == Fault::BlackHole {
        // Accepted and then silence; whoever still waits at its end is sent away.
        let _ = fault.changed().await;
        return reset(&client);
    }
    let Ok(server) = TcpStream::connect(shared.target).await else { return reset(&client) };
    let copy = if now == Fault::Duplicate { second(shared.target).await } else { None };
    let number = shared.connections.fetch_add(1, Ordering::Relaxed);
    let line = |fault: &watch::Receiver<Fault>, up: bool| Line {
        up,
        fault: fault.clone(),
        dice: Dice::new(shared.seed, number * 2 + u64::from(up)),
    };
    // Both ends send small requests; waiting to fill a packet would only blur the faults.
    let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let end = tokio::select! {
        end = pump(line(&fault, true), &mut from_client, &mut to_server, copy, None) => end,
        end = pump(line(&fault, false), &mut from_server, &mut to_client, None, shared.rewrite.as_ref()) => end,
    };
    if end == End::Reset {
        reset(from_client.as_ref());
        reset(from_server.as_ref());
    }
}

/// The next close of this stream is an RST, which also discards what was not yet delivered.
fn reset(stream: &TcpStream) {
    // If it cannot be set, the close is an ordinary one.
    let _ = stream.set_zero_linger();
}

/// Another connection to the target, which gets what the first one gets; its answers go nowhere.
async fn second(target: SocketAddr) -> Option<OwnedWriteHalf> {
    let (mut answers, write) = TcpStream::connect(target).await.ok()?.into_split();
    tokio::spawn(async move {
        let mut nothing = vec![0; 16 << 10];
        while answers.read(&mut nothing).await.is_ok_and(|bytes| bytes > 0) {}
    });
    Some(write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;
    use tokio::time::timeout;

    /// A server that says back what it hears, and tells how many bytes that was.
    async fn echo() -> (SocketAddr, Arc<AtomicU64>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(AtomicU64::new(0));
        let count = heard.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let count = count.clone();
                tokio::spawn(async move {
                    let mut buffer = [0; 1024];
                    while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
                        count.fetch_add(bytes as u64, Ordering::SeqCst);
                        stream.write_all(&buffer[..bytes]).await.unwrap();
                    }
                });
            }
        });
        (address, heard)
    }

    async fn ask(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
        stream.write_all(text).await?;
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer).await.map(|_| answer)
    }

    #[tokio::test]
    async fn without_a_fault_and_in_slices_bytes_pass_as_they_are() {
        let (server, _) = echo().await;
        let proxy = Proxy::start(server, None, 1).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        for fault in [Fault::None, Fault::Slices, Fault::Latency { ms_max: 2 }, Fault::OneWay { ms: 1, up: true }] {
            proxy.set(fault);
            assert_eq!(ask(&mut stream, b"hello, broker").await.unwrap(), b"hello, broker", "{fault:?}");
        }
    }

    #[tokio::test]
    async fn a_reset_ends_open_connections_and_refuses_new_ones_until_it_is_over() {
        let (server, _) = echo().await;
        let proxy = Proxy::start(server, None, 1).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        ask(&mut stream, b"x").await.unwrap();
        proxy.set(Fault::Reset);
        assert!(ask(&mut stream, b"x").await.is_err());
        let mut other = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(ask(&mut other, b"x").await.is_err());
        proxy.set(Fault::None);
        let mut third = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut third, b"x").await.unwrap(), b"x");
    }

    #[tokio::test]
    async fn a_cut_lets_through_no_more_than_it_says() {
        let (server, heard) = echo().await;
        let proxy = Proxy::start(server, None, 1).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        ask(&mut stream, b"x").await.unwrap();
        proxy.set(Fault::Cut { bytes_max: 5 });
        assert!(ask(&mut stream, b"more than five bytes").await.is_err());
        assert!(heard.load(Ordering::SeqCst) <= 1 + 5);
    }

    #[tokio::test]
    async fn a_black_hole_answers_nothing_while_it_lasts() {
        let (server, _) = echo().await;
        let proxy = Proxy::start(server, None, 1).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        ask(&mut stream, b"x").await.unwrap();
        proxy.set(Fault::BlackHole);
        assert!(timeout(Duration::from_millis(200), ask(&mut stream, b"x")).await.is_err());
    }

    #[tokio::test]
    async fn a_duplicated_connection_sends_everything_twice_and_answers_once() {
        let (server, heard) = echo().await;
        let proxy = Proxy::start(server, None, 1).await.unwrap();
        proxy.set(Fault::Duplicate);
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut stream, b"abc").await.unwrap(), b"abc");
        let twice = async {
            while heard.load(Ordering::SeqCst) < 6 {
                tokio::task::yield_now().await;
            }
        };
        assert!(timeout(Duration::from_secs(10), twice).await.is_ok());
    }
}

//! Whether the servers answer: RocketMQ's remoting protocol, as little of it as one question needs.
//!
//! ```text
//! 0      4              length of what follows, u32, big-endian
//! 4      1              encoding of the header: 0 = JSON
//! 5      3              length of the header h, u24, big-endian
//! 8      h              header
//! 8+h    length-4-h     body
//! ```

use super::settings::Ports;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

/// `RequestCode.GET_BROKER_RUNTIME_INFO`.
const BROKER_RUNTIME: u32 = 28;
/// `RequestCode.GET_BROKER_CLUSTER_INFO`.
const CLUSTER: u32 = 106;
/// How long one server may take for one answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// An answer larger than this comes from something else than a RocketMQ server.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Ready means: the name server answers and knows the broker by the address clients use, and the broker answers there.
/// An open port is not enough: the broker opens its ports before it has recovered its store and registered.
pub(super) fn ready(ports: Ports) -> Result<(), String> {
    let cluster = ask(ports.name_server(), CLUSTER).map_err(|error| format!("name server does not answer: {error}"))?;
    let broker = ports.broker();
    // Not parsed: the server's JSON has numbers as field names, which is not JSON.
    if !contains(&cluster, format!("\"{broker}\"").as_bytes()) {
        return Err("the broker has not registered at the name server yet".to_owned());
    }
    // With access control on, the answer is a refusal; that is an answer.
    ask(broker, BROKER_RUNTIME).map_err(|error| format!("broker does not answer: {error}")).map(|_| ())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Sends one request without fields and returns the body of its answer.
fn ask(address: SocketAddrV4, code: u32) -> Result<Vec<u8>, String> {
    let mut connection = TcpStream::connect_timeout(&address.into(), ANSWER_TIME_MAX).map_err(|e| e.to_string())?;
    let timeout = Some(ANSWER_TIME_MAX);
    connection
        .set_read_timeout(timeout)
        .and_then(|()| connection.set_write_timeout(timeout))
        .map_err(|e| e.to_string())?;
    connection.write_all(&request(code)).map_err(|e| e.to_string())?;
    let mut length = [0; 4];
    connection.read_exact(&mut length).map_err(|e| e.to_string())?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if !(4..=ANSWER_BYTES_MAX).contains(&length) {
        return Err(format!("odd length of an answer: bytes={length}"));
    }
    let mut answer = vec![0; length];
    connection.read_exact(&mut answer).map_err(|e| e.to_string())?;
    body(&answer).ok_or_else(|| "not an answer of RocketMQ".to_owned())
}

fn request(code: u32) -> Vec<u8> {
    let header = json!({
        "code": code, "flag": 0, "language": "JAVA", "opaque": 1, "serializeTypeCurrentRPC": "JSON", "version": 0,
    });
    let header = header.to_string().into_bytes();
    let length = u32::try_from(header.len()).expect("the header is built above and short");
    let mut frame = Vec::from((length + 4).to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame.extend(header);
    frame
}

/// The body of the answer to our request (`opaque` 1).
fn body(answer: &[u8]) -> Option<Vec<u8>> {
    let (mark, rest) = answer.split_first_chunk::<4>()?;
    let header_length = usize::try_from(u32::from_be_bytes(*mark) & 0x00ff_ffff).ok()?;
    let (header, body) = rest.split_at_checked(header_length)?;
    let header: Value = serde_json::from_slice(header).ok()?;
    (header.get("opaque")?.as_u64()? == 1 && header.get("code").is_some()).then(|| body.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_cut_at_its_header() {
        let header = br#"{"code":0,"opaque":1}"#;
        let mut answer = Vec::from(21_u32.to_be_bytes());
        answer.extend(header);
        answer.extend(b"{0:\"body\"}");
        assert_eq!(body(&answer), Some(b"{0:\"body\"}".to_vec()));
        assert_eq!(body(&answer[..20]), None, "cut inside the header");
        assert_eq!(body(b"HTTP/1.1 400 Bad Request"), None);
    }

    #[test]
    fn a_request_frames_its_header() {
        let frame = request(CLUSTER);
        assert_eq!(usize::try_from(u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])), Ok(frame.len() - 4));
        assert_eq!(body(&frame[4..]), Some(Vec::new()));
    }
}

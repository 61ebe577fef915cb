//! Name server and broker in one, on one loopback port: it says what it is told to say.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// What is said to one kind of request.
#[derive(Clone, Default, Debug)]
pub(crate) struct Answer {
    pub(crate) code: i64,
    pub(crate) remark: String,
    /// The `extFields`, as JSON.
    pub(crate) fields: String,
    pub(crate) body: Vec<u8>,
    /// Bytes to send before the reply.
    pub(crate) before: Vec<u8>,
    /// Bytes to send in place of a reply.
    pub(crate) raw: Option<Vec<u8>>,
    pub(crate) hang_up: bool,
}

impl Answer {
    pub(crate) fn fields(code: i64, fields: &str) -> Self {
        Answer { code, fields: fields.to_owned(), ..Answer::default() }
    }

    pub(crate) fn raw(bytes: Vec<u8>) -> Self {
        Answer { raw: Some(bytes), ..Answer::default() }
    }

    pub(crate) fn silence() -> Self {
        Answer::raw(vec![])
    }

    pub(crate) fn hang_up() -> Self {
        Answer { hang_up: true, ..Answer::default() }
    }
}

/// One frame with this JSON header.
pub(crate) fn frame(header: &str, body: &[u8]) -> Vec<u8> {
    let total = u32::try_from(4 + header.len() + body.len()).unwrap();
    let header_len = u32::try_from(header.len()).unwrap();
    [&total.to_be_bytes()[..], &header_len.to_be_bytes(), header.as_bytes(), body].concat()
}

#[derive(Default)]
struct Script {
    answers: Mutex<BTreeMap<i64, Answer>>,
    /// Connections that registered a producer group by a heartbeat.
    producers: Mutex<Vec<mpsc::UnboundedSender<Vec<u8>>>>,
    /// Connections that are open.
    open: AtomicUsize,
    /// Requests so far, by code.
    asked: Mutex<BTreeMap<i64, usize>>,
}

pub(crate) struct Fake {
    address: String,
    script: Arc<Script>,
}

const HEARTBEAT: i64 = 34;
const ROUTE: i64 = 105;
const CLUSTER: i64 = 106;

impl Fake {
    pub(crate) async fn start() -> Fake {
        Fake::start_at("127.0.0.1:0").await
    }

    pub(crate) async fn start_at(address: &str) -> Fake {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let script = Arc::new(Script::default());
        let fake = Fake { address: address.clone(), script: script.clone() };
        let broker = format!(
            r#"{{"brokerAddrs":{{"0":"{address}"}},"brokerName":"fake","cluster":"c","enableActingMaster":false}}"#
        );
        let cluster = format!(r#"{{"brokerAddrTable":{{"fake":{broker}}},"clusterAddrTable":{{"c":["fake"]}}}}"#);
        let queues = r#"{"brokerName":"fake","perm":6,"readQueueNums":4,"writeQueueNums":4,"topicSysFlag":0}"#;
        let route = format!(r#"{{"brokerDatas":[{broker}],"queueDatas":[{queues}],"filterServerTable":{{}}}}"#);
        fake.answer(CLUSTER, Answer { body: cluster.into_bytes(), ..Answer::fields(0, "{}") });
        fake.answer(ROUTE, Answer { body: route.into_bytes(), ..Answer::fields(0, "{}") });
        fake.answer(HEARTBEAT, Answer::fields(0, "{}"));
        fake.answer(31, Answer::fields(0, r#"{"offset":"0"}"#));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let script = script.clone();
                tokio::spawn(async move {
                    script.open.fetch_add(1, Ordering::SeqCst);
                    serve(stream, script.clone()).await;
                    script.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        fake
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn connections(&self) -> usize {
        self.script.open.load(Ordering::SeqCst)
    }

    /// How often it got a request of this kind.
    pub(crate) fn asked(&self, code: i64) -> usize {
        self.script.asked.lock().unwrap().get(&code).copied().unwrap_or_default()
    }

    /// Waits until it got this many requests of a kind.
    pub(crate) async fn asked_times(&self, code: i64, times: usize) {
        while self.asked(code) < times {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// What it answers at present.
    pub(crate) fn said(&self, code: i64) -> Answer {
        self.script.answers.lock().unwrap()[&code].clone()
    }

    pub(crate) fn answer(&self, code: i64, answer: Answer) {
        self.script.answers.lock().unwrap().insert(code, answer);
    }

    /// Sends bytes to each connection that registered a producer group; waits until there is one.
    pub(crate) async fn push_to_producers(&self, bytes: Vec<u8>) {
        loop {
            let producers = self.script.producers.lock().unwrap().clone();
            let sent = producers.iter().filter(|producer| producer.send(bytes.clone()).is_ok()).count();
            if sent > 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

async fn serve(stream: TcpStream, script: Arc<Script>) {
    let (mut from, mut to) = stream.into_split();
    let (sender, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
    tokio::spawn(async move {
        while let Some(bytes) = queue.recv().await {
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    while let Some((header, body)) = read_frame(&mut from).await {
        let header: serde_json::Value = serde_json::from_slice(&header).unwrap();
        let code = header["code"].as_i64().unwrap();
        if code == HEARTBEAT && String::from_utf8_lossy(&body).contains("groupName") {
            script.producers.lock().unwrap().push(sender.clone());
        }
        *script.asked.lock().unwrap().entry(code).or_default() += 1;
        let answer = script.answers.lock().unwrap().get(&code).cloned();
        let answer = answer.unwrap_or_else(|| Answer::fields(3, "{}"));
        if answer.hang_up {
            return;
        }
        let _ = sender.send(answer.before.clone());
        let reply = answer.raw.clone().unwrap_or_else(|| reply(&header, &answer));
        let _ = sender.send(reply);
    }
}

fn reply(request: &serde_json::Value, answer: &Answer) -> Vec<u8> {
    let fields: serde_json::Value =
        if answer.fields.is_empty() { serde_json::json!({}) } else { serde_json::from_str(&answer.fields).unwrap() };
    let header = serde_json::json!({
        "code": answer.code, "opaque": request["opaque"], "flag": 1, "language": "JAVA", "version": 0,
        "remark": answer.remark, "extFields": fields, "serializeTypeCurrentRPC": "JSON",
    });
    frame(&header.to_string(), &answer.body)
}

async fn read_frame(from: &mut (impl AsyncReadExt + Unpin)) -> Option<(Vec<u8>, Vec<u8>)> {
    let total = from.read_u32().await.ok()?;
    let mut frame = vec![0; total as usize];
    from.read_exact(&mut frame).await.ok()?;
    let header_len = u32::from_be_bytes(frame[..4].try_into().unwrap()) & 0x00ff_ffff;
    let body = frame.split_off(4 + header_len as usize);
    Some((frame.split_off(4), body))
}

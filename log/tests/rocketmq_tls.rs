//! TLS fails closed: a good certificate works, every other one is refused, a server without TLS is refused, and whatever
//! happens no connection ever begins with anything but a TLS hello.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

#[path = "rocketmq/fake.rs"]
mod fake;
#[path = "rocketmq/front.rs"]
mod front;

use fake::{Answer, Fake};
use front::{Authority, Front, Signed, self_signed, server, write};
use onceflow_log::rocketmq::{ClientCertificate, RocketLog, RocketOptions, TlsOptions};
use onceflow_log::{Log, MessageBatch};
use onceflow_types::{Error, ErrorKind, Partition, Result};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const SEND: i64 = 310;
const ROUTE: i64 = 105;
const CLUSTER: i64 = 106;
const SENT: &str = r#"{"msgId":"7F000001000027100000000000000309","queueId":"0","queueOffset":"5"}"#;

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

/// A name server behind one front and a broker behind another.
struct Place {
    name_server: Front,
    broker: Front,
    folder: TempDir,
}

type Config = std::sync::Arc<tokio_rustls::rustls::ServerConfig>;

impl Place {
    async fn new(name_server: Option<Config>, broker: Option<Config>) -> Place {
        Place::changing([name_server.clone(), name_server], broker).await
    }

    /// The name server shows something else after its first connection.
    async fn changing([first, later]: [Option<Config>; 2], broker: Option<Config>) -> Place {
        let fake = Fake::start().await;
        let name_server = Front::start_changing(first, later, fake.address()).await;
        let broker = Front::start(broker, fake.address()).await;
        let address = &broker.address;
        let data = format!(
            r#"{{"brokerAddrs":{{"0":"{address}"}},"brokerName":"fake","cluster":"c","enableActingMaster":false}}"#
        );
        let cluster = format!(r#"{{"brokerAddrTable":{{"fake":{data}}},"clusterAddrTable":{{"c":["fake"]}}}}"#);
        let queues = r#"{"brokerName":"fake","perm":6,"readQueueNums":4,"writeQueueNums":4,"topicSysFlag":0}"#;
        let route = format!(r#"{{"brokerDatas":[{data}],"queueDatas":[{queues}],"filterServerTable":{{}}}}"#);
        fake.answer(CLUSTER, Answer { body: cluster.into_bytes(), ..Answer::fields(0, "{}") });
        fake.answer(ROUTE, Answer { body: route.into_bytes(), ..Answer::fields(0, "{}") });
        fake.answer(SEND, Answer::fields(0, SENT));
        Place { name_server, broker, folder: tempfile::tempdir().unwrap() }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn options(&self, tls: TlsOptions) -> RocketOptions {
        let mut options = RocketOptions::new(&self.name_server.address, "group");
        options.request_timeout = Duration::from_secs(4);
        options.start_time_max = Duration::ZERO;
        options.tls = Some(tls);
        options
    }

    /// Opens a log and appends one message.
    async fn work(&self, tls: TlsOptions) -> Result<()> {
        let log = RocketLog::open(self.options(tls)).await?;
        let mut batch = MessageBatch::default();
        batch.push(b"", b"body")?;
        let appended = log.append(&Partition::new("topic", "fake", 0), &batch).await;
        log.close().await;
        appended.map(drop)
    }

    async fn refused(&self, tls: TlsOptions) -> Error {
        let error = self.work(tls).await.expect_err("refused");
        self.never_plain();
        error
    }

    /// Every connection began with a TLS hello: record type 22, version 3.x.
    fn never_plain(&self) {
        let begins = [self.name_server.begins(), self.broker.begins()].concat();
        assert!(!begins.is_empty(), "somebody connected");
        for begin in begins {
            assert_eq!(begin[..2], [0x16, 0x03], "not a TLS hello: {begin:?}");
        }
    }
}

fn trusting(authority: &Authority, folder: &Path) -> TlsOptions {
    TlsOptions { ca_file: Some(authority.file(folder, "ca.pem")), ..TlsOptions::default() }
}

#[test]
fn the_right_certificate_works_on_every_connection() {
    run(async {
        let authority = Authority::new();
        let good = || Some(server(&authority.sign("127.0.0.1"), None));
        let place = Place::new(good(), good()).await;
        place.work(trusting(&authority, place.folder())).await.unwrap();
        place.never_plain();
        assert!(place.name_server.let_in() > 0 && place.broker.let_in() > 0);
    });
}

fn bad_certificates(authority: &Authority) -> [(&'static str, Signed); 4] {
    [
        ("expired", authority.sign_until("127.0.0.1", 2002)),
        ("another host", authority.sign("broker.example.org")),
        ("signed by itself", self_signed("127.0.0.1")),
        ("signed by somebody else", Authority::new().sign("127.0.0.1")),
    ]
}

#[test]
fn a_name_server_with_a_bad_certificate_is_refused_for_good() {
    run(async {
        let authority = Authority::new();
        for (why, shown) in bad_certificates(&authority) {
            let place = Place::new(Some(server(&shown, None)), None).await;
            let error = place.refused(trusting(&authority, place.folder())).await;
            assert_eq!(error.kind(), ErrorKind::Invalid, "{why}: {}", error.report());
            assert!(error.report().contains("certificate of the server is refused"), "{why}: {}", error.report());
            assert_eq!(place.name_server.let_in(), 0, "{why}");
            assert!(place.broker.begins().is_empty(), "{why}");
        }
    });
}

/// Aim: the client library checks for itself. Method: a name server that is good when we look, and bad when it looks.
#[test]
fn a_name_server_that_turns_bad_is_refused() {
    run(async {
        let authority = Authority::new();
        let good = || Some(server(&authority.sign("127.0.0.1"), None));
        for (why, shown) in bad_certificates(&authority) {
            let place = Place::changing([good(), Some(server(&shown, None))], good()).await;
            let error = place.refused(trusting(&authority, place.folder())).await;
            assert!(error.report().contains("name server"), "{why}: {}", error.report());
            assert_eq!(place.name_server.let_in(), 1, "{why}");
            assert!(place.name_server.begins().len() > 1 && place.broker.begins().is_empty(), "{why}");
        }
        let place = Place::changing([good(), None], good()).await;
        place.refused(trusting(&authority, place.folder())).await;
        assert!(place.name_server.begins().len() > 1 && place.broker.begins().is_empty());
    });
}

#[test]
fn a_broker_with_a_bad_certificate_is_refused_for_good() {
    run(async {
        let authority = Authority::new();
        for (why, shown) in bad_certificates(&authority) {
            let good = Some(server(&authority.sign("127.0.0.1"), None));
            let place = Place::new(good, Some(server(&shown, None))).await;
            let error = place.refused(trusting(&authority, place.folder())).await;
            assert_eq!(error.kind(), ErrorKind::Invalid, "{why}: {}", error.report());
            assert!(error.report().contains("certificate of the server is refused"), "{why}: {}", error.report());
            assert_eq!(place.broker.let_in(), 0, "{why}");
        }
    });
}

#[test]
fn a_server_without_tls_is_refused() {
    run(async {
        let authority = Authority::new();
        let place = Place::new(None, None).await;
        place.refused(trusting(&authority, place.folder())).await;
        let good = Some(server(&authority.sign("127.0.0.1"), None));
        let place = Place::new(good, None).await;
        let error = place.refused(trusting(&authority, place.folder())).await;
        assert!(error.report().contains("no TLS with the server"), "{}", error.report());
        assert!(!place.broker.begins().is_empty());
    });
}

#[test]
fn a_server_that_asks_for_our_certificate_gets_it() {
    run(async {
        let (servers, clients) = (Authority::new(), Authority::new());
        let asking = || Some(server(&servers.sign("127.0.0.1"), Some(&clients)));
        let place = Place::new(asking(), asking()).await;
        let folder = place.folder();
        let own = |signed: &Signed, name: &str| {
            Some(ClientCertificate {
                certificate_file: write(folder, &format!("{name}.pem"), &signed.certificate),
                key_file: write(folder, &format!("{name}.key"), &signed.key),
            })
        };
        let trusting = trusting(&servers, folder);
        place.refused(trusting.clone()).await;
        let stranger = own(&servers.sign("client"), "stranger");
        place.refused(TlsOptions { client_certificate: stranger, ..trusting.clone() }).await;
        assert_eq!(place.broker.let_in(), 0);
        let known = own(&clients.sign("client"), "known");
        place.work(TlsOptions { client_certificate: known, ..trusting }).await.unwrap();
        assert!(place.broker.let_in() > 0);
    });
}

#[test]
fn files_that_cannot_be_used_are_named_before_anything_is_sent() {
    run(async {
        let authority = Authority::new();
        let place = Place::new(None, None).await;
        let folder = place.folder();
        let good = authority.file(folder, "ca.pem");
        let empty = write(folder, "empty.pem", "");
        let damaged = write(folder, "damaged.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let client = authority.sign("client");
        let certificate = write(folder, "client.pem", &client.certificate);
        let other_key = write(folder, "other.key", &authority.sign("client").key);
        let own = |key_file: &Path| {
            Some(ClientCertificate { certificate_file: certificate.clone(), key_file: key_file.to_owned() })
        };
        let ca = |file: &Path| TlsOptions { ca_file: Some(file.to_owned()), ..TlsOptions::default() };
        for (tls, named) in [
            (ca(&folder.join("missing.pem")), "missing.pem"),
            (ca(&empty), "empty.pem"),
            (ca(&damaged), "damaged.pem"),
            (TlsOptions { client_certificate: own(&empty), ..ca(&good) }, "empty.pem"),
            (TlsOptions { client_certificate: own(&other_key), ..ca(&good) }, "client certificate"),
        ] {
            let error = place.work(tls).await.expect_err(named);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{named}: {}", error.report());
            assert!(error.report().contains(named), "{}", error.report());
        }
        assert!(place.name_server.begins().is_empty(), "nothing was sent");
    });
}

/// The one way to take less than a good certificate has a name that says so; it still is TLS.
#[test]
fn only_the_insecure_option_takes_any_certificate() {
    run(async {
        let shown = || Some(server(&self_signed("elsewhere.example.org"), None));
        let place = Place::new(shown(), shown()).await;
        let insecure = TlsOptions { insecure_accept_any_certificate: true, ..TlsOptions::default() };
        place.work(insecure.clone()).await.unwrap();
        place.never_plain();
        let place = Place::new(None, None).await;
        place.refused(insecure).await;
    });
}

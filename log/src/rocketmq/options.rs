//! How to reach a cluster, and the bounds of everything a handle does.

use onceflow_types::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Longest producer group name (`Validators.CHARACTER_MAX_LENGTH` of RocketMQ's Java client).
const GROUP_BYTES_MAX: usize = 255;

/// Settings of a [`RocketLog`](super::RocketLog).
///
/// ```
/// use onceflow_log::rocketmq::{Credentials, RocketOptions};
///
/// let options = RocketOptions::new("127.0.0.1:9876", "payments-job");
/// assert!(options.check().is_ok());
/// let options = RocketOptions { credentials: Some(Credentials::new("admin", "s3cret")), ..options };
/// assert!(!format!("{options:?}").contains("s3cret"));
/// ```
#[derive(Clone, Debug)]
pub struct RocketOptions {
    /// Name servers, `host:port`, several with `;` between them.
    pub name_server: String,
    /// The producer group. It is part of each half message's identity, so it stays the same for the life of a job; no
    /// program that cannot answer check-backs may be in it.
    pub group: String,
    /// Tells the handles of one machine apart in RocketMQ's tools; must differ between handles of one process.
    pub instance: String,
    /// With them each request is signed.
    pub credentials: Option<Credentials>,
    /// With them every connection is TLS, to name servers and brokers, and none is ever plain. Needs the feature `tls`.
    pub tls: Option<TlsOptions>,
    /// Longest wait for one TCP connection.
    pub connect_timeout: Duration,
    /// Longest wait for the answer to one request, waiting for a free place in flight included.
    pub request_timeout: Duration,
    /// How long [`RocketLog::open`](super::RocketLog::open) goes on trying while no name server or no broker can be
    /// reached. Zero: one try.
    pub start_time_max: Duration,
    /// How long a read waits for the broker's dispatch when its offset is above the queue's end, before it says
    /// `DataLoss`. An acknowledged append may take so long to show at the end of its queue.
    pub dispatch_lag_max: Duration,
    /// Pause between signs of life on an idle connection; brokers close those that are silent for 120 s.
    pub keep_alive: Duration,
    /// Most requests in flight on one connection.
    pub in_flight_max: usize,
    /// Most bytes of requests in flight on one connection; one larger request goes alone.
    pub in_flight_bytes_max: usize,
    /// Largest frame that is read from a broker, in bytes. A longer one closes the connection.
    pub frame_bytes_max: usize,
    /// Most one message, or one batch, may be, in bytes: the broker's `maxMessageSize` without a reserve for what the
    /// broker adds.
    pub message_bytes_max: usize,
    /// How long a member of a consumer group may give no sign of life before the others do without it. Must exceed a few
    /// times the interval at which members look, which is when they give one.
    pub member_silence_max: Duration,
    /// Most check-backs that wait for an answer; more are dropped and counted, the broker asks again.
    pub check_backs_max: usize,
}

impl RocketOptions {
    /// Settings for RocketMQ's defaults: `maxMessageSize` of 4 MiB with a reserve of 64 KiB.
    pub fn new(name_server: impl Into<String>, group: impl Into<String>) -> Self {
        RocketOptions {
            name_server: name_server.into(),
            group: group.into(),
            instance: "onceflow".to_owned(),
            credentials: None,
            tls: None,
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(5),
            start_time_max: Duration::from_secs(15),
            dispatch_lag_max: Duration::from_secs(2),
            keep_alive: Duration::from_secs(30),
            in_flight_max: 1024,
            in_flight_bytes_max: 64 << 20,
            frame_bytes_max: 32 << 20,
            message_bytes_max: (4 << 20) - (64 << 10),
            member_silence_max: Duration::from_secs(10),
            check_backs_max: 4096,
        }
    }

    /// Checks all that can be checked without a network.
    ///
    /// # Errors
    /// `Invalid`, naming the setting.
    pub fn check(&self) -> Result<()> {
        let addresses = self.name_server.split(';').filter(|address| !address.trim().is_empty());
        if addresses.clone().count() == 0 || !addresses.clone().all(is_address) {
            return Err(Error::invalid(format!("name server must be host:port: name_server={:?}", self.name_server)));
        }
        let group_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"%|_-".contains(&byte);
        if self.group.is_empty() || self.group.len() > GROUP_BYTES_MAX || !self.group.bytes().all(group_byte) {
            return Err(Error::invalid(format!("bad producer group: group={:?}", self.group)));
        }
        if self.tls.is_some() && !cfg!(feature = "tls") {
            return Err(Error::invalid("TLS was asked for, and this program was built without the feature `tls`"));
        }
        let bounds = [
            ("in_flight_max", self.in_flight_max),
            ("in_flight_bytes_max", self.in_flight_bytes_max),
            ("frame_bytes_max", self.frame_bytes_max),
            ("message_bytes_max", self.message_bytes_max),
            ("check_backs_max", self.check_backs_max),
        ];
        if let Some((name, value)) = bounds.iter().find(|(_, value)| *value == 0 || *value > i32::MAX as usize) {
            return Err(Error::invalid(format!("must be 1 to {}: {name}={value}", i32::MAX)));
        }
        let waits = [
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("keep_alive", self.keep_alive),
            ("member_silence_max", self.member_silence_max),
        ];
        if let Some((name, _)) = waits.iter().find(|(_, wait)| wait.is_zero()) {
            return Err(Error::invalid(format!("must not be zero: {name}")));
        }
        Ok(())
    }
}

fn is_address(address: &str) -> bool {
    address.trim().rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Access key and secret key of RocketMQ's access control. `Debug` shows neither.
#[derive(Clone)]
pub struct Credentials {
    pub(super) access_key: String,
    pub(super) secret_key: String,
}

impl Credentials {
    /// From an access key and a secret key.
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        Credentials { access_key: access_key.into(), secret_key: secret_key.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(hidden)")
    }
}

/// How servers are known, and how they know us. By default: by the certificates that the system trusts.
///
/// A server must show a certificate for the host name or address under which it is reached: for brokers that is what
/// they tell the name server (`brokerIP1`).
#[derive(Clone, Default, Debug)]
pub struct TlsOptions {
    /// Certificates to trust, as PEM; the system's are not trusted then.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate, for servers that ask for one.
    pub client_certificate: Option<ClientCertificate>,
    /// Takes any certificate of anybody: whoever sits between can read and change everything. For test set-ups; it warns
    /// at each start.
    pub insecure_accept_any_certificate: bool,
}

/// A certificate with its key, in files.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// The certificate and those that lead from it to a trusted one, as PEM.
    pub certificate_file: PathBuf,
    /// Its private key, as PEM without a password.
    pub key_file: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_settings_are_named() {
        let bad = |change: fn(&mut RocketOptions)| {
            let mut options = RocketOptions::new("localhost:9876; [::1]:9877", "g");
            options.check().expect("good settings");
            change(&mut options);
            options.check().expect_err("bad setting").to_string()
        };
        assert!(bad(|o| o.name_server = "localhost".into()).contains("name_server"));
        assert!(bad(|o| o.name_server = ";".into()).contains("name_server"));
        assert!(bad(|o| o.group = "a b".into()).contains("group"));
        #[cfg(not(feature = "tls"))]
        assert!(bad(|o| o.tls = Some(TlsOptions::default())).contains("without the feature"));
        assert!(bad(|o| o.in_flight_max = 0).contains("in_flight_max"));
        assert!(bad(|o| o.request_timeout = Duration::ZERO).contains("request_timeout"));
    }
}

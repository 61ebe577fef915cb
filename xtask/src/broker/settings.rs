//! The settings of an instance: what was asked for, kept beside the data for the next start, and the files made of it.

use crate::Outcome;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

/// The RocketMQ that Onceflow is tested against,
pub(crate) const VERSION: &str = "5.5.0";
/// ... and the oldest one: what is calibrated, and killed in a container, runs on both.
pub(crate) const VERSION_OLDEST: &str = "5.3.3";

/// The ports of an instance, all on loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports(pub(super) u16);

impl Ports {
    /// The largest base: the highest port of an instance is the base + 11.
    pub(super) const BASE_MAX: u16 = u16::MAX - 11;

    pub(super) fn name_server(self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.0)
    }

    pub(super) fn broker(self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.0 + 10)
    }

    /// Replication's port; nobody uses it here, but the broker opens it.
    fn replication(self) -> u16 {
        self.0 + 11
    }

    /// The ports of the name server; or of the broker, which also opens one two below its own for old clients.
    pub(super) fn of(self, role: super::Role) -> Vec<u16> {
        match role {
            super::Role::NameServer => vec![self.0],
            super::Role::Broker => vec![self.0 + 8, self.0 + 10, self.0 + 11],
        }
    }
}

/// What one start asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) version: String,
    pub(super) port_base: u16,
    /// Broker properties beyond ours; they win.
    pub(super) properties: BTreeMap<String, String>,
    /// User and password of the super user; access control is on if they are there.
    pub(super) acl: Option<(String, String)>,
}

impl Settings {
    pub(super) fn new(port_base: u16) -> Self {
        Self { version: VERSION.to_owned(), port_base, properties: BTreeMap::new(), acl: None }
    }

    pub(super) fn ports(&self) -> Ports {
        Ports(self.port_base)
    }

    /// Reads what the last start left in `file`; none if there was no start.
    pub(super) fn load(file: &Path) -> Outcome<Option<Self>> {
        let Ok(text) = std::fs::read_to_string(file) else { return Ok(None) };
        let bad = || format!("cannot read the settings in {}: remove the folder", file.display());
        let value: Value = serde_json::from_str(&text).map_err(|_| bad())?;
        Self::from_json(&value).ok_or_else(bad).map(Some)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "version": self.version,
            "port_base": self.port_base,
            "properties": self.properties,
            "acl": self.acl.as_ref().map(|(user, password)| json!([user, password])),
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let properties: &Map<String, Value> = value.get("properties")?.as_object()?;
        let properties = properties.iter().map(|(name, value)| Some((name.clone(), text(value)?)));
        let acl = match value.get("acl")?.as_array() {
            Some(pair) => Some((text(pair.first()?)?, text(pair.get(1)?)?)),
            None => None,
        };
        Some(Self {
            version: text(value.get("version")?)?,
            port_base: u16::try_from(value.get("port_base")?.as_u64()?).ok()?,
            properties: properties.collect::<Option<_>>()?,
            acl,
        })
    }

    pub(super) fn name_server_file(&self) -> String {
        format!("listenPort={}\nbindAddress={}\n", self.port_base, Ipv4Addr::LOCALHOST)
    }

    /// The broker's configuration: ours, then what was asked for.
    pub(super) fn broker_file(&self, data: &Path) -> String {
        let mut all = self.defaults(data);
        self.add_acl(&mut all);
        all.extend(self.properties.clone());
        // A decided half message is noted as such in batches, up to 3 s late by default, and is asked about until then.
        // So the batch shrinks with the check interval: that only makes check-backs about decided messages rarer.
        if let Some(shortest) = self.check_ms_min() {
            let batch_ms = (shortest / 10).clamp(50, 3000);
            all.entry("transactionOpBatchInterval".to_owned()).or_insert(batch_ms.to_string());
        }
        all.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "{name}={value}");
            text
        })
    }

    fn check_ms_min(&self) -> Option<u64> {
        let set = |name| self.properties.get(name).and_then(|value| value.parse::<u64>().ok());
        set("transactionTimeOut").into_iter().chain(set("transactionCheckInterval")).min()
    }

    fn defaults(&self, data: &Path) -> BTreeMap<String, String> {
        let ports = self.ports();
        let store = data.join("store").display().to_string();
        let host = Ipv4Addr::LOCALHOST.to_string();
        let lines = [
            ("brokerClusterName", "DefaultCluster".to_owned()),
            ("brokerName", "broker-a".to_owned()),
            ("brokerId", "0".to_owned()),
            // The address told to clients and the one listened on: nobody else can reach it.
            ("brokerIP1", host.clone()),
            ("brokerIP2", host.clone()),
            ("bindAddress", host),
            ("listenPort", ports.broker().port().to_string()),
            ("haListenPort", ports.replication().to_string()),
            ("namesrvAddr", ports.name_server().to_string()),
            ("storePathCommitLog", format!("{store}/commitlog")),
            ("storePathRootDir", store),
            ("autoCreateTopicEnable", "true".to_owned()),
            // Small files: a short test should not map a gigabyte.
            ("mappedFileSizeCommitLog", (128 << 20).to_string()),
            ("diskMaxUsedSpaceRatio", "95".to_owned()),
            // On a disk that is 85 % full a broker deletes its oldest files whatever their age: journals with them.
            ("cleanFileForciblyEnable", "false".to_owned()),
            // By default one pull gets at most 32 messages or 256 KiB (8 and 64 KiB from disk); that, not the disk,
            // bounds a reader that pulls by offset.
            ("maxTransferCountOnMessageInMemory", "1024".to_owned()),
            ("maxTransferBytesOnMessageInMemory", (4 << 20).to_string()),
            ("maxTransferCountOnMessageInDisk", "1024".to_owned()),
            ("maxTransferBytesOnMessageInDisk", (4 << 20).to_string()),
            // On a small busy machine a send may wait longer than the 200 ms after which the broker refuses it.
            ("brokerFastFailureEnable", "false".to_owned()),
            ("osPageCacheBusyTimeOutMills", "5000".to_owned()),
        ];
        lines.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Access control 2.0 with one super user, whose name the broker's own inner clients use, too.
    fn add_acl(&self, all: &mut BTreeMap<String, String>) {
        const AUTH: &str = "org.apache.rocketmq.auth";
        let Some((user, password)) = &self.acl else { return };
        let mut set = |name: &str, value: String| all.insert(name.to_owned(), value);
        for (kind, noun) in [("authentication", "Authentication"), ("authorization", "Authorization")] {
            set(&format!("{kind}Enabled"), "true".to_owned());
            set(&format!("{kind}Provider"), format!("{AUTH}.{kind}.provider.Default{noun}Provider"));
            set(&format!("{kind}MetadataProvider"), format!("{AUTH}.{kind}.provider.Local{noun}MetadataProvider"));
        }
        set("initAuthenticationUser", json!({"username": user, "password": password}).to_string());
        set("innerClientAuthenticationCredentials", json!({"accessKey": user, "secretKey": password}).to_string());
    }
}

/// One plain log file for each server: the jars' own configuration opens some 30 files and starts slower.
pub(super) fn logging_file(log: &Path) -> String {
    let log = log.display();
    format!(
        r#"<configuration>
  <appender name="FILE" class="ch.qos.logback.core.rolling.RollingFileAppender">
    <file>{log}</file>
    <rollingPolicy class="ch.qos.logback.core.rolling.FixedWindowRollingPolicy">
      <fileNamePattern>{log}.%i</fileNamePattern><minIndex>1</minIndex><maxIndex>2</maxIndex>
    </rollingPolicy>
    <triggeringPolicy class="ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy">
      <maxFileSize>64MB</maxFileSize>
    </triggeringPolicy>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5p %c{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Settings {
        let mut settings = Settings::new(22000);
        settings.properties.insert("transactionTimeOut".to_owned(), "1000".to_owned());
        settings.properties.insert("brokerName".to_owned(), "other".to_owned());
        settings.acl = Some(("root".to_owned(), "a \"quoted\" word".to_owned()));
        settings
    }

    #[test]
    fn settings_come_back_as_they_were_saved() {
        let settings = asked();
        assert_eq!(Settings::from_json(&settings.to_json()), Some(settings.clone()));
        let plain = Settings { acl: None, ..settings };
        assert_eq!(Settings::from_json(&plain.to_json()), Some(plain));
    }

    #[test]
    fn a_given_property_wins_over_ours() {
        let text = asked().broker_file(Path::new("/data"));
        assert!(text.contains("brokerName=other\n") && !text.contains("brokerName=broker-a"), "{text}");
        assert!(text.contains("transactionOpBatchInterval=100\n"), "{text}");
        assert!(text.contains("listenPort=22010\n") && text.contains("namesrvAddr=127.0.0.1:22000\n"), "{text}");
    }

    #[test]
    fn without_a_user_there_is_no_access_control() {
        let open = Settings::new(22000).broker_file(Path::new("/data"));
        assert!(!open.contains("auth") && !open.contains("transactionOpBatchInterval"), "{open}");
    }
}

//! The files that the servers read, and where things are inside the containers.

use crate::{Outcome, Setup};
use std::fmt::Write as _;
use std::path::Path;

/// Where the shared folder is inside the containers.
pub(crate) const VOLUME: &str = "/data";

/// Names and ports of one RocketMQ.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The network's name, and the first part of the containers' names.
    pub(crate) name: String,
    /// Of the name server, and of the broker.
    pub(crate) ports: [u16; 2],
}

impl Layout {
    pub(crate) fn new(name: String, ports: [u16; 2]) -> Self {
        Layout { name, ports }
    }

    /// The name server's address inside the network.
    pub(crate) fn name_server(&self) -> String {
        format!("{}-name-server:{}", self.name, self.ports[0])
    }

    /// Writes the configuration of both servers and of the admin tool.
    pub(crate) fn write(&self, folder: &Path, setup: &Setup) -> Outcome {
        std::fs::write(folder.join("name-server.conf"), format!("listenPort={}\n", self.ports[0]))?;
        std::fs::write(folder.join("broker.conf"), self.broker(setup))?;
        for role in ["name-server", "broker"] {
            std::fs::write(folder.join(format!("{role}.logback.xml")), logging(role))?;
        }
        Ok(std::fs::create_dir_all(folder.join("tmp"))?)
    }

    fn broker(&self, setup: &Setup) -> String {
        let port = self.ports[1].to_string();
        let store = format!("{VOLUME}/store");
        let mut text = String::new();
        let mut set = |name: &str, value: &str| {
            // The last line of a name wins.
            let _ = writeln!(text, "{name}={value}");
        };
        set("brokerClusterName", "DefaultCluster");
        set("brokerName", "broker-a");
        set("brokerId", "0");
        set("brokerIP1", "127.0.0.1");
        set("listenPort", &port);
        set("namesrvAddr", &self.name_server());
        set("storePathCommitLog", &format!("{store}/commitlog"));
        set("storePathRootDir", &store);
        // Small files: a short test should not map a gigabyte.
        set("mappedFileSizeCommitLog", "67108864");
        set("diskMaxUsedSpaceRatio", "95");
        // On a disk that is 85 % full a broker deletes its oldest files whatever their age: journals with them.
        set("cleanFileForciblyEnable", "false");
        set("maxTransferCountOnMessageInMemory", "1024");
        set("maxTransferBytesOnMessageInMemory", "4194304");
        set("maxTransferCountOnMessageInDisk", "1024");
        set("maxTransferBytesOnMessageInDisk", "4194304");
        // On a small busy machine a send may wait longer than the 200 ms after which the broker refuses it.
        set("brokerFastFailureEnable", "false");
        set("osPageCacheBusyTimeOutMills", "5000");
        // Half messages are asked about soon, and more than once in a test.
        set("transactionTimeOut", "3000");
        set("transactionCheckInterval", "2000");
        if let Some((user, password)) = &setup.acl {
            access_control(user, password, &mut set);
        }
        for (name, value) in &setup.properties {
            set(name, value);
        }
        text
    }
}

/// Access control 2.0 with one super user, whose name the broker's own inner clients use, too.
fn access_control(user: &str, password: &str, set: &mut impl FnMut(&str, &str)) {
    const AUTH: &str = "org.apache.rocketmq.auth";
    for (kind, noun) in [("authentication", "Authentication"), ("authorization", "Authorization")] {
        set(&format!("{kind}Enabled"), "true");
        set(&format!("{kind}Provider"), &format!("{AUTH}.{kind}.provider.Default{noun}Provider"));
        set(&format!("{kind}MetadataProvider"), &format!("{AUTH}.{kind}.provider.Local{noun}MetadataProvider"));
    }
    set("initAuthenticationUser", &format!("{{\"username\":\"{user}\",\"password\":\"{password}\"}}"));
    set("innerClientAuthenticationCredentials", &format!("{{\"accessKey\":\"{user}\",\"secretKey\":\"{password}\"}}"));
}

/// One plain log file for each server: the jars' own configuration opens some 30 files and starts slower.
fn logging(role: &str) -> String {
    format!(
        r#"<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{VOLUME}/{role}.log</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5p %c{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"#
    )
}

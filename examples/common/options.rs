//! The command line of an example.

use onceflow::topology::Delivery;
use std::path::PathBuf;

/// An exactly-once job with its own data. Stop it with Ctrl-C or kill -9 at any moment and run it again: it goes on
/// where it was.
#[derive(clap::Parser, Clone, Debug)]
pub struct Options {
    /// Where the embedded log and the state are kept [default: target/onceflow/<example>]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Run on a RocketMQ cluster: name servers, host:port, several with `;` between them (feature `rocketmq`)
    #[arg(long, value_name = "ADDR")]
    pub name_server: Option<String>,
    /// Access key of RocketMQ's access control [default: $ONCEFLOW_ACCESS_KEY]
    #[arg(long, value_name = "KEY", requires = "secret_key")]
    pub access_key: Option<String>,
    /// Secret key of RocketMQ's access control [default: $ONCEFLOW_SECRET_KEY]
    #[arg(long, value_name = "KEY", requires = "access_key")]
    pub secret_key: Option<String>,
    /// The state store: memory, fjall, rocksdb or sled; the last two are features
    #[arg(long, value_name = "STORE", default_value = "fjall")]
    pub store: String,
    /// How the output reaches consumers; a job keeps the one it began with
    #[arg(long, value_enum, default_value_t = DeliveryWord::Transactional)]
    pub delivery: DeliveryWord,
    /// Input records in all; the data is repeated until there are so many
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Worker threads; 0: one for each core
    #[arg(long, value_name = "T", default_value_t = 0)]
    pub threads: usize,
    /// Forget all earlier runs in the directory first
    #[arg(long, conflicts_with = "name_server")]
    pub reset: bool,
}

/// A [`Delivery`] as a word of the command line.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum DeliveryWord {
    /// Transactional messages, for every consumer
    Transactional,
    /// Plain messages after the decision
    Outbox,
    /// Many records in one message, for readers that are Onceflow jobs
    Framed,
}

impl From<DeliveryWord> for Delivery {
    fn from(word: DeliveryWord) -> Delivery {
        match word {
            DeliveryWord::Transactional => Delivery::Transactional,
            DeliveryWord::Outbox => Delivery::Outbox { framed: false },
            DeliveryWord::Framed => Delivery::Outbox { framed: true },
        }
    }
}

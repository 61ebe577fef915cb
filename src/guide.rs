//! The code of the guide in `docs/guide`, as doc tests: each chapter is the documentation of an item here.

macro_rules! chapters {
    ($($name:ident: $file:literal),* $(,)?) => {$(
        #[doc = include_str!(concat!("../docs/guide/src/", $file, ".md"))]
        struct $name;
    )*};
}
chapters! {
    Introduction: "introduction",
    FirstJob: "first-job",
    Sources: "sources",
    Sinks: "sinks",
    KeyedState: "keyed-state",
    Branches: "branches",
    EventTime: "time",
    Windows: "windows",
    Joins: "joins",
    Processors: "processors",
    EndingState: "ending-state",
    Errors: "errors",
    Codecs: "codecs",
    Testing: "testing",
    Stores: "stores",
    Running: "running",
    Changing: "changing",
    Reading: "reading",
    FromKafkaStreams: "from-kafka-streams",
    FromRocketMqStreams: "from-rocketmq-streams",
}

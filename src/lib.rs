//! onceflow

package org.weirproject.client;

/** What is decided when weir, or its store, does not answer. */
public enum OnFailure {
    PASS,
    REFUSE,
    /** Unanswered is thrown. */
    THROW
}

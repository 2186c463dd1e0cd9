/** Asks a weir server whether a request is within its limits. */
package org.weirproject.client;

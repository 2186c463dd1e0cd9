/** The annotation {@link org.weirproject.spring.RateLimit} for Spring Boot. */
package org.weirproject.spring;
